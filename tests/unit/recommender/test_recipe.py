"""Recipes: those that are shipped are the paper's, and whatever is wrong in one is named."""

import tomllib
from pathlib import Path

import pytest

from railsearch import recipes
from railsearch.errors import InvalidInputError
from railsearch.recipes import CosineConfig, HSTUConfig, MixtureConfig, Recipe, SASRecConfig, TextRecipe, TrainingConfig
from railsearch.recommender.recipe import build_encoder, build_similarity

RECIPES = Path(recipes.__file__).parent
TEXT = RECIPES / "insuranceqa"
DATA_SETS = ("ml-1m", "ml-20m", "books")
OWN = RECIPES / "ml-1m" / "best.toml"
FILES = sorted(file for name in DATA_SETS for file in (RECIPES / name).iterdir() if file != OWN)
KINDS = ["hstu", "hstu-mol", "hstu-mol-no-balance", "sasrec", "sasrec-mol"]

# The paper's published configurations, in the order ML-1M, ML-20M, Books.
PAPER = {
    name: dict(zip(DATA_SETS, values, strict=True))
    for name, values in {
        "max_length": (200, 200, 50),
        "dim": (50, 256, 64),
        "sasrec": ((2, 1), (4, 4), (4, 4)),  # blocks, heads
        "hstu": ((8, 2, 25), (16, 8, 32), (16, 8, 8)),  # blocks, heads, size of a head
        "dropout": (0.2, 0.2, 0.5),
        "components": ((8, 4, 64), (8, 4, 128), (8, 8, 32)),  # of queries, of items, size
        "projection": ("swiglu", "swiglu", "geglu"),
        "user_table": ((6040, 0.5), (16384, 0.8), None),
        "negatives": (128, 128, 512),
        "batch_size": (128, 128, 64),
        "epochs": (101, 151, 201),
    }.items()
}


def decay(folder: str, kind: str) -> float:
    """Weight decay: with HSTU and a mixture everywhere, with HSTU alone on MovieLens-1M only."""
    return 1e-3 if "hstu-mol" in kind or (folder, kind) == ("ml-1m", "hstu") else 0.0


def test_every_table_of_the_paper_has_its_recipes() -> None:
    assert {(file.parent.name, file.stem) for file in FILES} == {
        (folder, kind) for folder in DATA_SETS for kind in KINDS
    }


def test_recipes_of_text_differ_only_in_what_they_compare() -> None:
    names = ["cosine", "merged", "mol", "mol-no-balance"]
    assert sorted(file.stem for file in TEXT.iterdir()) == names
    cosine, merged, mol, no_balance = (TextRecipe.read(TEXT / f"{name}.toml").model_dump(mode="json") for name in names)
    assert mol["training"].pop("balance_weight") > no_balance["training"].pop("balance_weight") == 0
    assert mol == no_balance
    for name in ("base", "max_query_length", "max_passage_length", "shares_backbone", "seed"):
        assert cosine["encoder"][name] == mol["encoder"][name] == merged["encoder"][name]
    assert cosine["similarity"]["temperature"] == mol["similarity"]["temperature"]
    assert cosine["data"] == mol["data"] == merged["data"]
    for name in ("epochs", "batch_size", "learning_rate", "schedule", "warmup_share", "weight_decay", "seed"):
        assert cosine["training"][name] == mol["training"][name]


def test_merged_tokens_train_the_top_layer_and_name_the_equally_trained_cosine() -> None:
    file = TEXT / "merged.toml"
    changes = ["training.trained_layers=1", "training.epochs=2", "training.learning_rate=2e-4"]
    cosine = TextRecipe.read(TEXT / "cosine.toml", changes)
    assert TextRecipe.read(file).training == cosine.training
    heading = file.read_text().partition("[data]")[0]
    assert all(change.partition(".")[2] in heading for change in changes)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_shipped_recipes_are_the_papers(file: Path) -> None:
    folder, kind = file.parent.name, file.stem
    paper = {name: values[folder] for name, values in PAPER.items()}
    recipe = Recipe.read(file)
    assert recipe.data.folder == f"data/{folder}"
    encoder = recipe.encoder
    assert (encoder.max_length, encoder.dim, encoder.dropout) == (paper["max_length"], paper["dim"], paper["dropout"])
    if kind.startswith("sasrec"):
        assert isinstance(encoder, SASRecConfig)
        assert (encoder.num_blocks, encoder.num_heads) == paper["sasrec"]
    else:
        assert isinstance(encoder, HSTUConfig)
        assert (encoder.num_blocks, encoder.num_heads, encoder.head_dim) == paper["hstu"]
    similarity, training = recipe.similarity, recipe.training
    assert similarity.temperature == 0.05
    if "mol" in kind:
        assert isinstance(similarity, MixtureConfig)
        assert (similarity.num_query_components, similarity.num_item_components, similarity.component_dim) == paper[
            "components"
        ]
        assert (similarity.query_projection, similarity.projection_dim) == (paper["projection"], 512)
        assert (similarity.gate_dim, similarity.gate_dropout, similarity.item_dropout) == (128, 0.2, 0.1)
        assert set(similarity.gate_inputs) == {"query", "item", "pair"}
        has_users = paper["user_table"] is not None
        assert similarity.user_table_size == (paper["user_table"][0] if has_users else None)
        num_users = {"ml-1m": 6_040, "ml-20m": 138_493}.get(folder, 0)  # more users than rows share them
        assert similarity.user_table_hashing == (has_users and paper["user_table"][0] < num_users)
        if has_users:
            assert (similarity.user_dropout, training.user_penalty_weight) == (paper["user_table"][1], 0.1)
        assert training.balance_weight == (0.0 if "no-balance" in kind else 0.001)
    else:
        assert isinstance(similarity, CosineConfig)
    assert (training.num_negatives, training.batch_size, training.epochs) == (
        paper["negatives"], paper["batch_size"], paper["epochs"],
    )  # fmt: skip
    assert (training.negatives, training.positions_per_history) == ("per_example", None)
    assert (training.learning_rate, training.betas) == (1e-3, (0.9, 0.98))
    assert (training.schedule, training.warmup_share, training.max_gradient_norm) == ("constant", 0.0, None)
    assert training.weight_decay == decay(folder, kind)
    assert recipe.split.has_validation
    encoder, similarity = build_encoder(recipe, num_items=10, seed=0), build_similarity(recipe, seed=0)
    assert encoder.normalizes_output == ("mol" in kind)
    assert similarity.query_shape == (paper["dim"],)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_shipped_recipes_say_only_what_holds(file: Path) -> None:
    """No setting that has no effect: a penalty on users without a table, say."""
    written = tomllib.loads(file.read_text())
    assert ("user_penalty_weight" in written["training"]) == ("user_table_size" in written["similarity"])
    assert ("balance_weight" in written["training"]) == ("mol" in file.stem)


def test_a_recipe_survives_json() -> None:
    recipe = Recipe.read(RECIPES / "books" / "hstu-mol.toml")
    assert Recipe(**recipe.model_dump(mode="json")) == recipe


@pytest.mark.parametrize(
    ("change", "section", "setting", "value"),
    [
        ("training.epochs=5", "training", "epochs", 5),
        (" training.epochs = 5 ", "training", "epochs", 5),
        ("training.learning_rate=1e-4", "training", "learning_rate", 1e-4),
        ("training.betas=[0.8, 0.9]", "training", "betas", (0.8, 0.9)),
        ("training.metric=HR@10", "training", "metric", "HR@10"),
        ('training.metric="HR@10"', "training", "metric", "HR@10"),
        ("training.negatives=uniform", "training", "negatives", "uniform"),
        ("split.has_validation=false", "split", "has_validation", False),
        ("data.folder=/some where/a=b", "data", "folder", "/some where/a=b"),
        ("encoder.dropout=0", "encoder", "dropout", 0.0),
    ],
)
def test_single_settings_can_be_changed(change: str, section: str, setting: str, value: object) -> None:
    file = RECIPES / "ml-1m" / "hstu-mol.toml"
    changed, plain = Recipe.read(file, [change]), Recipe.read(file)
    assert getattr(getattr(changed, section), setting) == value
    assert changed == Recipe(
        **{**plain.model_dump(), section: {**getattr(plain, section).model_dump(), setting: value}}
    )


def test_the_last_change_counts() -> None:
    file = RECIPES / "ml-1m" / "sasrec.toml"
    assert Recipe.read(file, ["training.epochs=5", "training.epochs=6"]).training.epochs == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[trainin]\nepochs = 3", "trainin is not a setting; choose from: data, encoder, similarity, split, training"),
        ("[self]\nepochs = 3", "self is not a setting; choose from: data, encoder"),
        ("epochs = 3", "epochs is not a setting; choose from: data, encoder"),
        ("[training]\nepoch = 3", "training: epoch is not a setting; choose from: balance_weight, batch_size, betas"),
        ("[split]\nvalidation = true", "split: validation is not a setting; choose from: has_validation"),
        ("[data]\npath = 'x'", "data: path is not a setting; choose from: folder"),
        ("[encoder]\nkind = 'sasrec'\nhead_dim = 3", r"encoder\.sasrec: head_dim is not a setting; choose from: dim"),
        ("[similarity]\nkind = 'cosine'\ngate_dim = 3", r"similarity\.cosine: gate_dim is not a setting"),
        ("[encoder]\ndim = 3", r"encoder\.kind is missing; name one, such as 'sasrec', 'hstu'"),
        ("[encoder]\nkind = 'gru'", r"encoder\.kind is 'gru'; choose from: 'sasrec', 'hstu'"),
        ("encoder = 'hstu'", "encoder is 'hstu'|encoder.kind is missing"),
        ("[[training]]\nepochs = 3", "training is .*: input should be a valid dictionary"),
        ("[training]\nepochs = 'many'", "epochs is 'many': input should be a valid integer"),
        ("[training]\nepochs = 2.5", r"epochs is 2\.5: input should be a valid integer"),
        ("[training]\nepochs = true", "epochs is True, which would count as 1; give the value itself"),
        ("[training]\nepochs = -1", "epochs is -1: input should be greater than or equal to 0"),
        ("[training]\nseed = -1", "seed is -1: input should be greater than or equal to 0"),
        ("[training]\nlearning_rate = nan", "learning_rate is nan: input should be a finite number"),
        ("[training]\nlearning_rate = 0", "learning_rate is 0: input should be greater than 0"),
        ("[training]\nbetas = [0.9, 1.0]", r"betas\.1 is 1\.0: input should be less than 1"),
        ("[training]\nbetas = [0.9]", r"betas\.1 is missing"),
        ("[training]\nnegatives = 'best'", "negatives is 'best': input should be 'uniform', 'per_history'"),
        ("[training]\nschedule = 'step'", "schedule is 'step': input should be 'constant', 'linear' or 'cosine'"),
        ("[encoder]\nkind = 'hstu'\ndropout = 1.0", r"dropout is 1\.0: input should be less than 1"),
        ("[similarity]\nkind = 'mixture_of_logits'\ngate_inputs = ['user']", r"gate_inputs\.0 is 'user'"),
        ("[split]\nhas_validation = 'maybe'", "has_validation is 'maybe': input should be a valid boolean"),
        ("[training]\nepochs = -1\nbatch_size = 0", "epochs is -1.*; batch_size is 0"),
        ("[training\nepochs = 3", "cannot be read as TOML .*; repair it"),
        ("[training]\nepochs = 3\nepochs = 4", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=message) as caught:
        Recipe.read(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.epochs", "'training.epochs' is not a change of a setting; write section.setting=value"),
        ("epochs=5", "'epochs=5' is not a change of a setting"),
        ("training.epoch=", "'training.epoch=' would omit a setting that the recipe does not have"),
        ("", "'' is not a change of a setting"),
        ("training.epoch=5", "training: epoch is not a setting"),
        ("training.epochs.more=5", r"training: epochs\.more is not a setting"),
        ("trainin.epochs=5", "trainin is not a setting"),
        ("training.epochs=five", "epochs is 'five': input should be a valid integer"),
        ("similarity.kind=cosine", r"similarity\.cosine: num_query_components is not a setting"),
    ],
)
def test_changes_that_cannot_be(change: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Recipe.read(RECIPES / "ml-1m" / "hstu-mol.toml", [change])


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nowhere\.toml does not exist; give a recipe, which is a TOML file"):
        Recipe.read(tmp_path / "nowhere.toml")
    with pytest.raises(InvalidInputError, match="cannot be read as TOML"):
        Recipe.read(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="cannot be read as TOML"):
        Recipe.read(tmp_path / "binary.toml")


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TrainingConfig().epochs = 3


def test_a_setting_without_a_value_is_left_out() -> None:
    file = RECIPES / "ml-1m" / "hstu-mol.toml"
    changed = Recipe.read(file, ["similarity.user_table_size="])
    assert isinstance(changed.similarity, MixtureConfig)
    assert changed.similarity.user_table_size is None
