# What Meshloom uses of scikit-learn, which has no annotations.
