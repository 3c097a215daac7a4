"""Settings are declared once: recipes can say everything that a constructor can, and the defaults are the same."""

import inspect
from collections.abc import Callable

import pytest

from railsearch import DotProduct, MixtureOfLogits
from railsearch.encoders import HSTU, SASRec, TextEncoder
from railsearch.foundation.settings import Config
from railsearch.recipes import (
    CosineConfig,
    HSTUConfig,
    MixtureConfig,
    SASRecConfig,
    TextEncoderConfig,
    TextMixtureConfig,
)

FROM_THE_RECIPE = {"seed", "dim", "query_dim", "item_dim", "num_items", "feature_dim"}
"""Arguments that other sections of a recipe or the data decide."""
BY_THE_SIMILARITY = {"normalizes_output": None}
"""Settings that a recipe leaves to the similarity unless it states them."""
BY_THE_START = {"start": None, "component_dim": None, "query_projection": None, "item_projection": None}
"""Settings of a mixture that depend on its start unless a recipe states them."""
OF_TRAINING = {"user_table_hashing": False}
"""Settings of a mixture that training checks, and its constructor does not have."""
FROM_THE_ENCODER = {
    "num_query_components", "num_item_components", "component_dim", "query_projection", "item_projection",
    "projection_dim",
}  # fmt: skip
"""Of a text mixture: its components come ready from the encoder."""
WITHOUT_EFFECT = {"item_dropout", "user_table_size", "user_table_hashing", "user_dropout"}
"""Of a text mixture: nothing is projected, and there are no users."""


def defaults_of(build: Callable[..., object]) -> dict[str, object]:
    parameters = inspect.signature(build).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name not in FROM_THE_RECIPE}


def settings_of(config: type[Config]) -> dict[str, object]:
    fields = config.model_fields
    return {name: field.default for name, field in fields.items() if name not in {"kind", *FROM_THE_RECIPE}}


@pytest.mark.parametrize(
    ("config", "build"),
    [(MixtureConfig, MixtureOfLogits), (SASRecConfig, SASRec), (HSTUConfig, HSTU)],
    ids=lambda kind: kind.__name__,
)
def test_recipes_say_what_constructors_say(config: type[Config], build: Callable[..., object]) -> None:
    elsewhere = {**BY_THE_SIMILARITY, **BY_THE_START, **OF_TRAINING}
    by_recipe = {name: value for name, value in elsewhere.items() if name in config.model_fields}
    assert settings_of(config) == {**defaults_of(build), **by_recipe}


def test_a_random_start_has_the_defaults_of_the_constructor() -> None:
    arguments = MixtureConfig(start="random").arguments(dim=50)
    built = {name: arguments[name] for name in BY_THE_START if name != "start"}
    assert built == {name: value for name, value in defaults_of(MixtureOfLogits).items() if name in built}


@pytest.mark.parametrize("settings", [{"component_dim": 16}, {"query_projection": "swiglu"}, {"start": "random"}])
def test_a_mixture_starts_as_a_cosine_unless_its_components_are_described(settings: dict[str, object]) -> None:
    assert MixtureConfig().starts_as_cosine
    assert not MixtureConfig(**settings).starts_as_cosine
    assert MixtureConfig(component_dim=50, start="identity").starts_as_cosine


@pytest.mark.parametrize(("config", "build"), [(SASRecConfig, SASRec), (HSTUConfig, HSTU)])
def test_the_size_of_an_encoder_has_one_default(config: type[Config], build: Callable[..., object]) -> None:
    assert config.model_fields["dim"].default == inspect.signature(build).parameters["dim"].default


def test_a_cosine_is_a_dot_product_at_the_temperature_of_the_mixture() -> None:
    expected = {**defaults_of(DotProduct), "temperature": MixtureConfig().temperature}
    del expected["cosine"]
    assert settings_of(CosineConfig) == expected


def test_a_text_mixture_is_the_mixture_without_projections() -> None:
    omitted = FROM_THE_ENCODER | WITHOUT_EFFECT | {"start"}
    expected = {name: value for name, value in settings_of(MixtureConfig).items() if name not in omitted}
    found = settings_of(TextMixtureConfig)
    around = defaults_of(MixtureOfLogits.around)  # for an encoder that returns one embedding for each text
    for name in ("num_query_components", "num_item_components"):
        assert found.pop(name) == around[name]
    assert found.pop("gate_inputs") == ("pair",)
    assert found.pop("window_sharpness") > 0  # of text encoders with pooling="windows"
    del expected["gate_inputs"]
    assert found == expected


def test_text_knobs_are_written_once() -> None:
    parameters = inspect.signature(TextEncoder.from_pretrained).parameters
    assert set(parameters) == {"settings", "allow_download"}
    assert parameters["settings"].annotation in {TextEncoderConfig, "TextEncoderConfig"}


@pytest.mark.parametrize(
    "config", [MixtureConfig, CosineConfig, TextMixtureConfig, SASRecConfig, HSTUConfig, TextEncoderConfig]
)
def test_every_setting_is_described(config: type[Config]) -> None:
    for name, field in config.model_fields.items():
        assert name == "kind" or field.description, name
