# The answer is a static method of a class.
# must: full marks

# %%
class Answers:
    @staticmethod
    def shuffle_rows(x, permutation):
        return x[..., permutation, :]

shuffle_rows = Answers.shuffle_rows
