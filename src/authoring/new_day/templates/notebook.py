# %% [markdown]
# # Day NEW_NAME: NEW_TITLE, to play with
#
# Replace this by experiments: two or three, each with one control and a picture that answers. The notebooks of other
# days show how.

# %%
# %load_ext notebooks

# %%
from notebooks import lab

# %% [markdown]
# ## Predict
#
# What are the running means of 2, 4, 0 and 2?

# %%
x = lab.array([[2.0], [4.0], [0.0], [2.0]])
print(lab.numpy(lab.NEW_MODULE.running_mean(x)).ravel().tolist())
