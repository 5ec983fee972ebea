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
	{
		"a notification opens a subscription", "internal/conversation/request.go",
		`	if one.Kind != jsonrpc.Request {
		return r
	}
`, ``,
		mcphttpPkg, "^TestListenAsNotification$",
	},
	{
		"an upstream learns of a task of the gate's from a notification", "internal/conversation/tasks.go",
		`return len(own) > 0`, `return false && len(own) > 0`,
		mcphttpPkg, "^TestListenAsNotification$",
	},
	{
		"a client is notified as often as the server acknowledges", "internal/mcpstdio/forward.go",
		` && !x.subscribed.Swap(true)`, ``,
		"internal/mcpstdio", "^TestRepeatedAcknowledgement$",
	},
	{
		"a client is notified twice after its server has ended", "internal/mcpstdio/forward.go",
		`return x.request.Listens() && !x.subscribed.Load()`, `return x.request.Listens()`,
		"internal/mcpstdio", "^TestListenEndsAfterAcknowledgement$",
	},
	{
		"a batch may wait for ever for a silent stream", "internal/mcphttp/events.go",
		`if !a.x.endless() {`, `if a.x.id() != nil && !a.x.endless() {`,
		mcphttpPkg, "^TestSilentStream$",
	},
	{
		"a client has no more time for an answer than the upstream", "internal/mcphttp/passevents.go",
		`s.lookForQuestion(buffer.text()[:sent])`, ``,
		mcphttpPkg, "^TestSilenceByRight$",
	},
	{
		"the result of an upstream's task has to come in time", "internal/mcphttp/relay.go",
		`if a.x.blocks {`, `if false {`,
		mcphttpPkg, "^TestSilenceByRight$",
	},
	{
		"the time of an earlier read counts for one without a limit", "internal/upstream/http1/exchange.go",
		`if d == 0 && x.conn.patience > 0 {`, `if false {`,
		mcphttpPkg, "^TestSilenceByRight$",
	},
	{
		"a call is cut while the client has a longer question", "internal/mcphttp/passevents.go",
		`return asksIn(events[:edge], events[len(events)-edge:])`, `return false`,
		mcphttpPkg, "^TestSilenceByRight$",
	},
}
