"""The model card of a recommender: its training data, its quality, and the protocol of the measurement."""

from railsearch.data import Split
from railsearch.evaluation import Analysis, Evaluation
from railsearch.folders import ModelCard
from railsearch.recommender.recipe import HSTUConfig, Recipe
from railsearch.training import FitReport


def describe_recommender(
    split: Split, recipe: Recipe, report: FitReport, measured: Analysis | Evaluation | None
) -> ModelCard:
    """Build the card when training is done; `measured` is None in all processes but the first."""
    analysis = measured if isinstance(measured, Analysis) else None
    evaluation = measured.evaluation if isinstance(measured, Analysis) else measured
    data = split.interactions
    held_out = "validation items" if split.validation is not None else "the test items themselves, as in the paper"
    num_trained = split.num_train_events if split.train_starts is None else split.num_target_events
    knows_times = isinstance(recipe.encoder, HSTUConfig)
    return ModelCard(
        title=f"{recipe.encoder.kind} with {recipe.similarity.kind}",
        purpose="A recommender by railsearch: it takes a history of items and ranks the item that comes next."
        + " The encoder uses the time of each held-out item, as a server uses the time of a request." * knows_times,
        data=f"{data.source}: {len(data):,} events of {data.num_users:,} users with {data.num_items:,} items, of which "
        f"{num_trained:,} were trained on; {len(data.bad_rows)} rows were skipped as bad.",
        counts={
            "users": data.num_users,
            "items": data.num_items,
            "events": len(data),
            "train_events": num_trained,
            "bad_rows": len(data.bad_rows),
        },
        protocol=split.protocol,
        best_epoch=report.best_epoch,
        num_epochs=report.num_epochs,
        picked_by=f"{recipe.training.metric} on {held_out}",
        validation=report.best.validation,
        metrics={} if evaluation is None else evaluation.metrics,
        beyond={} if analysis is None else analysis.beyond,
        segments=[] if analysis is None else [segment.to_dict() for segment in analysis.segments],
        epochs=[{"epoch": each.epoch, "loss": each.loss, "validation": each.validation} for each in report.epochs],
        seed=recipe.training.seed,
        seconds=report.seconds,
    )
