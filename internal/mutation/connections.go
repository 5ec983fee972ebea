package main

// connections are changes of what happens for clients that have left.
var connections = []mutation{
	{
		"an approved call runs for a client that left", "internal/conversation/hold.go",
		`	if h.gone() {
		return task.Task{}, false, ErrGone
	}
`, ``,
		appPkg, "^TestNothingRunsForClientThatLeft$",
	},
	{
		"an approved call runs for a client that asked for its result and left", "internal/mcphttp/stream.go",
		`	if x.Gone() {
		return nil, conversation.ErrGone
	}
`, ``,
		appPkg, "^TestNothingRunsForClientThatLeft$",
	},
	{
		"an outcome counts as delivered to a client that left", "internal/conversation/sender.go",
		`	if s.gone() {
		return // what`, `	if s.reply.Context().Err() != nil {
		return // what`,
		appPkg, "^TestOutcomeForPollerThatLeft$",
	},
	{
		"a call of a client that left is held", "internal/conversation/hold.go",
		`	if h.gone() {
		return task.Task{}, false, ErrGone
	}
`, ``,
		appPkg, "^TestNothingIsHeldForClientThatLeft$",
	},
	{
		"a batch of a client that left is held", "internal/conversation/wholebatch.go",
		`	if b.gone() {
		return ErrGone
	}
	b.identify`, `	b.identify`,
		appPkg, "^TestNothingIsHeldForClientThatLeft$",
	},
	{
		"a stream that is gone lets an approved call begin", "internal/conversation/listening.go",
		`		if l.gone() {
			return
		}
`, ``,
		appPkg, "^TestListenerThatLeft$",
	},
}
