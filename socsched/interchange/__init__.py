"""Reading of other tools' files: models, profiles and traces become pipelines, costs and result folders."""
