"""The section ``register`` of a pipeline: which model to register, and under which conditions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from function_app.config.fields import ModelName, Number, Section, check_order, matching

MetricName = Annotated[str, matching(r"[A-Za-z][A-Za-z0-9_]{0,99}", "the name of a metric, such as val_accuracy")]


class Requirement(Section):
    """One condition of the registration: a metric of the training report and its bound."""

    metric: MetricName
    """Metric of the training report, such as `val_accuracy`."""
    at_least: Number | None = None
    """Lower bound of the metric."""
    at_most: Number | None = None
    """Upper bound of the metric."""

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("must have at_least or at_most")
        check_order("at_least", self.at_least, "at_most", self.at_most)
        return self


class Compare(Section):
    """When a model that meets the conditions may be registered if there is a current one."""

    metric: MetricName | None = None
    """Metric that the models are compared by. Null: that of the first condition."""
    accept: Literal["not_worse", "better"] = "not_worse"
    """Required result of a paired bootstrap on the same validation examples, with 95 % confidence. `not_worse`: the
    model is not shown to be worse or, with `margin`, is worse by at most the margin. `better`: it is better by more
    than `margin`.
    """
    margin: Annotated[float, Field(ge=0)] | None = None
    """Difference in the unit of the metric: 0.01 is one point of an accuracy. Null: see `accept`; for `better` 0."""


class Register(Section):
    """Which model to register, and under which conditions."""

    model: ModelName
    """Name of the registered model."""
    require: tuple[Requirement, ...] = Field(default=(), max_length=50)
    """Conditions on the training report; a model is only registered if all hold."""
    superseded: Literal["register", "keep"] = "register"
    """What to do with a model whose data were superseded during its training: register it with a tag that says so, or
    keep it unregistered with its run.
    """
    compare: Compare | None = Compare()
    """Comparison with the current version of the model, if there is one and both runs stored the results of each
    example. Null: only the conditions decide.
    """
    promote: Literal["automatic", "by_person"] = "automatic"
    """How a registered version becomes the current one, which serving uses. `automatic`: if it passed the comparison
    or none was required; `by_person`: with `landfall promote`. A version that could not be compared, or whose data
    were superseded, always needs a person.
    """
