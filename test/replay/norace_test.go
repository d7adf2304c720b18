//go:build !race

package replay

// every is which recordings are played: all.
const every = 1
