package main

const (
	bridgePkg = "internal/upstream/bridge"
	linkPkg   = "internal/upstream/httplink"
)

// bridgeMutations are the changes of what is between HTTP and pipes.
var bridgeMutations = []mutation{
	{
		"a session is open to other principals", bridgePkg + "/session.go",
		`if p.principal != by.Principal {`, `if false {`,
		bridgePkg, "^TestForeignSession$",
	},
	{
		"a client cancels requests of others", bridgePkg + "/request.go",
		`case p.isSession():`, `case true:`,
		bridgePkg, "^TestCancelOfOthers$",
	},
	{
		"what a shared server says of one client is sent to another", bridgePkg + "/process.go",
		"if p.isSession() {\n\t\tp.show(m.Raw)", "if true {\n\t\tp.show(m.Raw)",
		bridgePkg, "^TestNotificationsForOthers$",
	},
	{
		"a server gets the environment of the gate", "internal/config/check.go",
		`if slices.ContainsFunc(serverVariables,`, `if true || slices.ContainsFunc(serverVariables,`,
		bridgePkg, "^TestEnviron$",
	},
	{
		"clients have as many processes as they like", bridgePkg + "/bridge.go",
		`full := b.room.Try(c, 1)`, `full := error(nil)`,
		bridgePkg, "^TestProcessLimits$",
	},
	{
		"progress of one client is sent to another", "internal/upstream/stdioclient/own.go",
		`patch.Replace(token, jsonrpc.AppendString(nil, id))`, ``,
		bridgePkg, "^TestShared$",
	},
	{
		"two answers to one request of a batch count for two requests", "internal/upstream/stdioclient/own.go",
		`case m.Kind == jsonrpc.Response && q.isAnswered(known):`, `case false:`,
		bridgePkg, "^TestAnsweredAgain$",
	},
	{
		"a call that was sent counts as not sent", bridgePkg + "/request.go",
		`trace.GotConn(httptrace.GotConnInfo{})`, ``,
		bridgePkg, "^TestHeldCrash$",
	},
	{
		"a call is sent again in a new session whatever became of it", linkPkg + "/session.go",
		`if err != nil || resp.Status != http.StatusNotFound || id == "" {`, `if err != nil || id == "" {`,
		linkPkg, "^TestLegacy$",
	},
	{
		"an answer over HTTP may stop in the middle for ever", "internal/upstream/httpclient/client.go",
		`resp.Body = c.AnswerBody(r, resp.Body)`, ``,
		linkPkg, "^TestSilence$",
	},
	{
		"the rest of a stream may never come", linkPkg + "/exchange.go",
		`x.l.cfg.Client.AnswerBody(x.request, rest.Body)`, `rest.Body`,
		linkPkg, "^TestSilence$",
	},
	{
		"a server over HTTP gets no more time for a question than for its answer", linkPkg + "/exchange.go",
		`x.anyTime = x.anyTime || asks`, `_ = asks`,
		linkPkg, "^TestQuestionOutlastsSilence$",
	},
	{
		"the result of a task over HTTP has to come in time", linkPkg + "/forward.go",
		`anyTime: upstream.Blocks(f.Packet)`, ``,
		linkPkg, "^TestResultOutlastsSilence$",
	},
	{
		"a slow client takes the time of the server", "internal/upstream/httpclient/patience.go",
		`b.timer.Stop() // whoever`, `// whoever`,
		"internal/upstream/httpclient", "^TestPatience$",
	},
	{
		"secrets are sent in the clear", "internal/config/remote.go",
		`u.URL.Scheme == "https" ||`, `u.URL.Scheme != "" ||`,
		"cmd/thoughtgate", "^TestRemote$",
	},
	{
		"an answer to a client that left takes memory for ever", bridgePkg + "/request.go",
		`memory.leave() // the server may have answered before it read the whole request`, ``,
		bridgePkg, "^TestAnswerBeforeTheEnd$",
	},
}
