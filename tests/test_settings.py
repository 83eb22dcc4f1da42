import re

import numpy as np
import pytest
from synthetic import quick, settings_of, waves

from bochner import ShareRule, SpectralMixtureRegressor
from bochner.settings import METHODS, resolve

NUMBERS = (
    "n_components",
    "n_points",
    "n_prediction_points",
    "n_draws",
    "n_restarts",
    "max_evals",
    "mc_samples",
)
CHOICES = ("inference", "posterior", "prior", "frequencies", "draw", "dtype", "shares")
BAD = [
    *((name, value) for name in NUMBERS for value in (0, -3, 2.5, "4", True, np.nan)),
    *((name, None) for name in NUMBERS if name not in ("n_components", "mc_samples")),
    *((name, value) for name in CHOICES for value in ("nonsense", 3, True, ("sobol",))),
    *((name, value) for name in ("inference", "posterior") for value in (None,)),
    *(("tol", value) for value in (-1e-3, np.nan, "small", None, True)),
    *(("kl_weight", value) for value in (-1.0, np.nan, "heavy", False)),
    *(("learning_rate", value) for value in (0, -0.1, np.nan, "fast", None)),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_argument_is_named_with_its_value_and_a_remedy(name, value):
    X, y = waves(20)
    with pytest.raises(ValueError, match=name) as caught:
        quick(**{name: value}).fit(X, y)
    message = str(caught.value)
    assert f"{name}={value!r}" in message
    assert any(remedy in message for remedy in ("must be", "choose one of"))


@pytest.mark.parametrize("name", [n for n in CHOICES if n != "posterior"])
def test_the_message_about_a_choice_lists_the_choices(name):
    with pytest.raises(ValueError, match="choose one of") as caught:
        settings_of(**{name: "nonsense"})
    assert len(str(caught.value).split("choose one of")[1].split(",")) >= 2


@pytest.mark.parametrize("value", [0, -2, 1.5, "2"])
def test_a_bad_number_of_jobs_is_refused(value):
    X, y = waves(20)
    with pytest.raises(ValueError, match=r"n_jobs=.*must be"):
        quick(n_jobs=value).fit(X, y)


@pytest.mark.parametrize("name", ["n_points", "n_prediction_points"])
def test_fewer_points_than_components_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}=4 .* n_components=5.* at least 5"):
        settings_of(**{"n_components": 5, "n_points": 9, "n_prediction_points": 9, name: 4})


def test_as_many_points_as_components_will_do():
    settings = settings_of(n_components=5, n_points=5, n_prediction_points=5)
    assert settings.n_points == 5


def test_the_floor_of_the_shares_counts_for_every_component():
    rule = ShareRule("weight", floor=4)
    with pytest.raises(ValueError, match="at least 12"):
        settings_of(n_points=11, shares=rule)
    assert settings_of(n_points=12, shares=rule).shares is rule


def test_a_rule_of_shares_with_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"shares\.name='nonsense'"):
        settings_of(shares=ShareRule("nonsense"))


def test_an_unknown_keyword_is_refused():
    with pytest.raises(TypeError, match="n_component"):
        SpectralMixtureRegressor(n_component=3)


def test_arguments_are_by_keyword_alone():
    with pytest.raises(TypeError):
        SpectralMixtureRegressor(6)


def test_arguments_are_checked_in_fit_and_not_before():
    assert SpectralMixtureRegressor(n_points=-1).n_points == -1


@pytest.mark.parametrize("inference", METHODS)
def test_none_takes_what_belongs_to_the_method(inference):
    settings = settings_of(inference=inference)
    assert settings.method == METHODS[inference]
    assert settings.shares == ShareRule(METHODS[inference].shares)


def test_a_given_argument_replaces_what_belongs_to_the_method():
    given = {"prior": "none", "frequencies": "positive", "draw": "iid", "dtype": "float64"}
    settings = settings_of(**given, kl_weight=0, shares="weight")
    assert settings.method == METHODS["auto"]._replace(**given, kl_weight=0)
    assert settings.shares.name == "weight"


def test_the_methods_of_the_paper_are_what_the_paper_says():
    paper = {name: m for name, m in METHODS.items() if name != "auto"}
    assert set(paper) == {"ss", "ss-rp", "svss", "svss-ws", "svss-ng", "svss-wsng"}
    for name, method in paper.items():
        assert (method.optimiser, method.draw, method.frequencies) == ("adam", "iid", "positive")
        assert method.points == ("once" if name == "ss" else "fresh")
        assert method.prior == ("start" if name.startswith("svss") else "none")
        assert method.natural == name.endswith("ng")
        assert method.shares == ("variance" if "-ws" in name else "equal")


def test_numpy_numbers_are_numbers():
    settings = settings_of(n_points=np.int64(30), tol=np.float32(0.1), kl_weight=np.float64(0.5))
    assert settings.n_points == 30


@pytest.mark.parametrize(
    ("n_rows", "n_inputs", "expected"), [(10, 1, 1), (45, 2, 3), (10_000, 2, 6), (300, 50, 1)]
)
def test_a_component_gets_three_rows_for_each_of_its_parameters(n_rows, n_inputs, expected):
    params = SpectralMixtureRegressor().get_params()
    assert resolve(params, n_rows, n_inputs).n_components == expected


@pytest.mark.parametrize(("n_rows", "expected"), [(499, 3), (500, 2), (1_999, 2), (2_000, 1)])
def test_few_rows_are_learned_from_over_more_draws(n_rows, expected):
    assert resolve(SpectralMixtureRegressor().get_params(), n_rows, 3).mc_samples == expected


def test_a_component_that_nobody_asked_for_is_never_blamed():
    model = SpectralMixtureRegressor(n_points=20, shares=ShareRule("weight", floor=4))
    assert resolve(model.get_params(), 10_000, 2).n_components == 5


def test_more_inputs_than_sobol_points_know_are_drawn_independently():
    params = SpectralMixtureRegressor().get_params()
    assert resolve(params, 100, 30_000).method.draw == "iid"
    with pytest.raises(ValueError, match=r"draw='sobol' serves at most 21201 inputs.*30000"):
        resolve({**params, "draw": "sobol"}, 100, 30_000)


@pytest.mark.parametrize(
    ("name", "value"), [("kl_weight", 1e300), ("tol", np.inf), ("verbose", "no"),
                        ("standardize", "no")]
)  # fmt: skip
def test_values_that_no_fit_could_use_are_refused(name, value):
    params = SpectralMixtureRegressor().get_params() | {name: value}
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}")):
        resolve(params, 100, 2)
