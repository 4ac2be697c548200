"""Learned cost models behind one protocol."""

from tunefleet.costmodel._base import CostModel, Program, Scores
from tunefleet.costmodel.random_ import RandomModel
from tunefleet.costmodel.xgb import XGBModel

MODELS: dict[str, type[RandomModel] | type[XGBModel]] = {
    model.name: model for model in (RandomModel, XGBModel)
}

__all__ = ["MODELS", "CostModel", "Program", "RandomModel", "Scores", "XGBModel"]
