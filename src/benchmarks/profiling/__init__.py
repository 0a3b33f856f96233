"""`pdm run profile`: what a step of an engine spends its time on."""
