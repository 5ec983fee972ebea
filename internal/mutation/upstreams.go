package main

// upstreams are changes of what passes between the gate and upstreams.
var upstreams = []mutation{
	// Deadlines of connections.
	{
		"a deadline that moves does not count for whoever waits", "internal/deadline/deadline.go",
		`if s.waiting == 0 {`, `if s.waiting >= 0 {`,
		"internal/deadline", "^TestExact$",
	},
	{
		"an earlier deadline does not count", "internal/deadline/deadline.go",
		`, !s.counts.IsZero() && s.counts.Before(s.below):`, `:`,
		"internal/deadline", "^TestExact$",
	},

	{
		"a read after an ended one fails first", "internal/deadline/deadline.go",
		`, s.below.Before(longAgo)`, ``,
		"internal/deadline", "^TestNoReadInVain$",
	},

	// Messages between the gate and an upstream over HTTP/1.1.
	{
		"an exchange that lasts cannot be cancelled", "internal/upstream/http1/exchange.go",
		"\tx.watch()\n\treturn x.conn.SetDeadline(x.until)", "\treturn x.conn.SetDeadline(x.until)",
		http1Pkg, "^TestCancel",
	},
	{
		"an answer must come before anybody watches", "internal/upstream/http1/conn.go",
		`if n > 0 || x == nil || !errors.Is(err, os.ErrDeadlineExceeded) {`, `if n > 0 || x == nil || err != nil {`,
		http1Pkg, "^TestLateAnswer$",
	},
	{
		"nobody watches an exchange that waits for more of its answer", "internal/upstream/http1/conn.go",
		`		c.watch()
		c.beforeWait()`, `		c.beforeWait()`,
		http1Pkg, "^TestCancelBetweenEvents$",
	},
	{
		"an exchange whose answer is always there goes on", "internal/upstream/http1/conn.go",
		`case c.unwatched != nil && c.unwatched.ctx.Err() != nil:`, `case false:`,
		http1Pkg, "^TestCancelBusyAnswer$",
	},
	{
		"nobody is told of a wait for the server", "internal/upstream/http1/conn.go",
		`		c.watch()
		c.beforeWait()`, `		c.watch()`,
		http1Pkg, "^TestBeforeWait$",
	},
	{
		"an event waits until there is room for the next one", "internal/mcphttp/passevents.go",
		`	if err := s.flush(); err != nil {
		return err
	}
	return seat.Take`, `	return seat.Take`,
		mcphttpPkg, "^TestEventBeforeRoom$",
	},
	{
		"events wait for more of the stream", "internal/mcphttp/passevents.go",
		`beforeWait(body, func() { _ = s.flush() })`, `beforeWait(body, func() {})`,
		mcphttpPkg, "^Test(StreamWrittenAtOnce|LargeEventsAreNotBuffered)$",
	},
	{
		"the end of an answer is late", "internal/mcphttp/account.go",
		` || took > x.out.timeout/2 && x.out.extend() != nil {`, ` {`,
		mcphttpPkg, "^TestLateEnd$",
	},
	{
		"a client that took nothing has its answer", "internal/mcphttp/stream.go",
		`!s.lost && s.behind <= announced`, `s.behind <= announced`,
		mcphttpPkg, "^TestEndNotTaken$",
	},
	{
		"a large place is taken without a medium one", "internal/upstream/room.go",
		`size > mediumAnswer && s.medium && s.room`, `size > mediumAnswer && s.room`,
		"internal/upstream", "^TestTryTakeInOrder$",
	},
	{
		"line ends in headers are sent", "internal/upstream/http1/request.go",
		`if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {`, `if s[i] == 0x7f {`,
		http1Pkg, "^TestInvalidRequests$",
	},
	{
		"a caller frames the request", "internal/upstream/http1/request.go",
		`if strings.EqualFold(name, own) {`, `if name == own+"x" {`,
		http1Pkg, "^TestFramingHeaders$",
	},
	{
		"a target has spaces and line ends", "internal/upstream/http1/request.go",
		`|| !isVisible(r.Target):`, `:`,
		http1Pkg, "^TestInvalidRequests$",
	},
	{
		"a kept connection is not looked at", "internal/upstream/http1/client.go",
		`if kept.quiet() {`, `if kept != nil {`,
		http1Pkg, "^Test(ClosedWhileIdle|UnaskedIsNoAnswer)$",
	},
	{
		"what TLS holds back is read as the next answer", "internal/upstream/http1/conn.go",
		`ok && !drained(secure) {`, `ok && secure == nil {`,
		http1Pkg, "^TestUnaskedIsNoAnswer$",
	},
	{
		"a connection is kept after half an answer", "internal/upstream/http1/exchange.go",
		"\t\tx.unwatch()\n\t\tx.drop()", "\t\tx.unwatch()\n\t\tx.client.pool.put(x.conn)",
		http1Pkg, "^Test(CloseWhileReading|Cancel|SlowServers)$",
	},
	{
		"a connection is kept while its request is being written", "internal/upstream/http1/exchange.go",
		`return x.writer.isDone(closingTime)`, `return true`,
		http1Pkg, "^TestEarlyAnswer$",
	},
	{
		"a connection is kept that the server closes", "internal/upstream/http1/exchange.go",
		`x.closes = x.closes || resp.Close ||`, `x.closes = x.closes ||`,
		http1Pkg, "^TestAgreesWithTransport$",
	},
	{
		"a held call takes a kept connection", "internal/upstream/http1/client.go",
		`for !fresh {`, `for range 1 {`,
		http1Pkg, "^TestFresh$",
	},
	{
		"the head of an answer has no limit", "internal/upstream/http1/conn.go",
		`n, err := r.readHead(p[:min(len(p), r.left)])`, "r.left = maxHead\n\tn, err := r.readHead(p)",
		http1Pkg, "^TestHeadLimit$",
	},
	{
		"interim answers have no limit", "internal/upstream/http1/exchange.go",
		`for range maxInterim {`, `for range 1 << 40 {`,
		http1Pkg, "^TestInterimLimit$",
	},
	{
		"a server that speaks HTTP/2 is sent HTTP/1.1", "internal/upstream/http1/client.go",
		`if secure.ConnectionState().NegotiatedProtocol == "h2" {`, `if false {`,
		http1Pkg, "^TestTLS$",
	},
	{
		"a name with escapes is not seen", "internal/conversation/signs.go",
		`if kind == anyLetter {`, `if false {`,
		"internal/conversation", "^TestMayAnswer$",
	},
	{
		"a name that ends on another line is not seen", "internal/conversation/signs.go",
		`case last == ':', last == '/', last >= 0x80:`, `case last == '/', last >= 0x80:`,
		"internal/conversation", "^TestMayAnswer$",
	},
	{
		"an upstream reports on a task of the gate's", "internal/conversation/signs.go",
		`bytes.HasPrefix(method, []byte(reportMethod))`, `false`,
		"internal/mcphttp", "^TestForgedReports$",
	},
	{
		"an event passes that clients take apart in different ways", "internal/mcphttp/events.go",
		`isSame(event, raw) && !framer.Plain()`, `false`,
		"internal/mcphttp", "^TestForgedFraming$",
	},
	{
		"an event with two lines of data is called plain", "jsonrpc/framer.go",
		`f.data <= 1`, `true`,
		"jsonrpc", "^TestPlain$",
	},
	{
		"an event with a lone CR is called plain", "jsonrpc/framer.go",
		`f.afterCR && f.open //`, `false //`,
		"jsonrpc", "^TestPlain$",
	},
	{
		"a large event passes that clients take apart in different ways", "jsonrpc/answers.go",
		`if s.afterCR && p[0] != '\n' {`, `if false {`,
		"jsonrpc", "^TestEventScanner$",
	},
	{
		"a report passes that names a task of the gate's under another name", "internal/upstream/dialogue.go",
		`reports && namesOwnTask(m.Params.Value, "")`, `reports && m.Params.TaskID.Present() && namesOwnTask(m.Params.Value, "")`,
		"internal/mcphttp", "^TestForgedFraming$",
	},
	{
		"an upstream speaks of any task of the gate's while it runs a held call", "internal/upstream/dialogue.go",
		`if TellsOfOwnTask(m, t.ID) {`, `if false {`,
		"internal/mcphttp", "^TestQuestionDuring",
	},
	{
		"an upstream that is a gate cannot ask because of its task", "internal/upstream/dialogue.go",
		` && task.ID(id) != except`, ``,
		"internal/mcphttp", "^TestQuestionDuringNestedTask$",
	},
	{
		"an upstream reads the id of a task of the gate's", "internal/conversation/request.go",
		`metaOf(m).Without(mcptask.MetaRelatedTask)`, `metaOf(m).Without()`,
		"internal/mcphttp", "^TestClientSpeaksOfTask$",
	},
	{
		"a large text of the upstream's reports on a task of the gate's", "internal/conversation/check.go",
		`if method == mcptask.MethodStatus2025 || method == mcptask.MethodStatus2026 {`, `if method == mcptask.MethodStatus2025+"x" {`,
		"internal/mcphttp", "^TestForgedReports$",
	},
	{
		"a result that is no object is kept", "internal/upstream/answer.go",
		`if head.Begin.IsObject() {`, `if true {`,
		"internal/mcphttp", "^TestUnusableLargeAnswers$",
	},
	{
		"an upstream answers what it was not asked", "internal/conversation/awaited.go",
		`return slices.ContainsFunc(r.ids, func(id []byte) bool { return jsonrpc.SameID(id, m.ID.Bytes) })`, `return true`,
		mcphttpPkg, "^TestForgedAnswers$",
	},
	{
		"an upstream answers for the gate", "internal/conversation/awaited.go",
		` && !r.hub.awaited.has(r.peer(), m.ID.Bytes)`, ``,
		mcphttpPkg, "^TestForgedAnswer",
	},
	{
		"an upstream answers what another replica holds", "internal/conversation/awaited.go",
		`r.hub.resumable.has(r.peer(), m.ID.Bytes) && `, ``,
		mcphttpPkg, "^TestForgedAnswer",
	},
	{
		"an upstream answers a call while it is asked about the tool", "internal/conversation/judge.go",
		`j.claimAnswer() // the upstream, which is asked now, must not answer the call`, ``,
		mcphttpPkg, "^TestForgedAnswerWhileAsked$",
	},
}
