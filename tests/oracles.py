"""Slow, plain computations that several test files compare the library with."""

import numpy as np

from bochner import SpectralMixture


def random_mixture(rng, n_components, n_inputs, reach=0.4):
    """Weights near 1, means of either sign, scales well away from 0."""
    shape = (n_components, n_inputs)
    return SpectralMixture(
        rng.uniform(0.5, 1.5, n_components),
        rng.uniform(-reach, reach, shape),
        rng.uniform(0.1, 0.5, shape),
    )


def unit_covariance(mu, sigma, tau):
    """One component of weight 1 at one lag, input by input."""
    decay, phase = 0.0, 0.0
    for d in range(len(tau)):
        decay += (sigma[d] * tau[d]) ** 2
        phase += mu[d] * tau[d]
    return np.exp(-2 * np.pi**2 * decay) * np.cos(2 * np.pi * phase)


def slow_gram(kernel, X, Z):
    K = np.zeros((len(X), len(Z)))
    for i in range(len(X)):
        for j in range(len(Z)):
            for w, mu, sigma in zip(kernel.weights, kernel.means, kernel.scales, strict=True):
                K[i, j] += w * unit_covariance(mu, sigma, X[i] - Z[j])
    return K


def slow_features(X, S):
    """Cosines of all points, then sines: (N, 2M), without amplitudes."""
    C = np.zeros((len(X), 2 * len(S)))
    for n in range(len(X)):
        for i in range(len(S)):
            phase = 2 * np.pi * float(np.dot(X[n], S[i]))
            C[n, i] = np.cos(phase)
            C[n, len(S) + i] = np.sin(phase)
    return C


def slow_amplitudes(weights, counts):
    a = []
    for w, m in zip(weights, counts, strict=True):
        a += [np.sqrt(w / m)] * int(m)
    return np.array(a + a)


def dense_log_density(Y, K):
    """Log density of the columns of Y, independent draws from N(0, K)."""
    sign, log_det = np.linalg.slogdet(K)
    assert sign > 0
    total = 0.0
    for y in Y.T:
        total -= 0.5 * (y @ np.linalg.solve(K, y) + log_det + len(y) * np.log(2 * np.pi))
    return total


def differences(f, theta, step=1e-3):
    """Gradient of f by central differences of the fourth order."""
    theta = np.asarray(theta, float)
    gradient = np.zeros(theta.shape)
    for i in np.ndindex(theta.shape):
        h = np.zeros(theta.shape)
        h[i] = step
        near = f(theta + h) - f(theta - h)
        far = f(theta + 2 * h) - f(theta - 2 * h)
        gradient[i] = (8 * near - far) / (12 * step)
    return gradient
