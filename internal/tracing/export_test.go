package tracing

// NewOver is New with a network of the test's own.
var NewOver = newTracing
