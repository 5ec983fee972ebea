//go:build !race

package testenv

// Race reports whether the race detector is on: it changes what the cost of work is.
const Race = false
