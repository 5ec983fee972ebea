//go:build !race

package explore

// raceFactor divides the number of runs.
const raceFactor = 1
