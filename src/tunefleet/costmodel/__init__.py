"""Learned cost models behind one protocol."""

from tunefleet.costmodel._base import CostModel, InputForm, LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._torch import has_cuda
from tunefleet.costmodel.attention import AttentionModel
from tunefleet.costmodel.lgbm import LGBMModel
from tunefleet.costmodel.mlp import MLPModel
from tunefleet.costmodel.random_ import RandomModel
from tunefleet.costmodel.unified import UnifiedModel
from tunefleet.costmodel.xgb import XGBModel

ModelClass = (
    type[AttentionModel]
    | type[LGBMModel]
    | type[MLPModel]
    | type[RandomModel]
    | type[UnifiedModel]
    | type[XGBModel]
)

MODELS: dict[str, ModelClass] = {
    AttentionModel.name: AttentionModel,
    LGBMModel.name: LGBMModel,
    MLPModel.name: MLPModel,
    RandomModel.name: RandomModel,
    UnifiedModel.name: UnifiedModel,
    XGBModel.name: XGBModel,
}

__all__ = [
    "MODELS",
    "AttentionModel",
    "CostModel",
    "InputForm",
    "LGBMModel",
    "LabelledPrograms",
    "MLPModel",
    "ProgramRows",
    "RandomModel",
    "Scores",
    "UnifiedModel",
    "XGBModel",
    "has_cuda",
]
