package tracing

// NewOver is New with a given network.
var NewOver = newTracing
