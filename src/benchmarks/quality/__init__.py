"""`pdm run bench quality`: how well each form of the model predicts, beside the same weights in float32."""
