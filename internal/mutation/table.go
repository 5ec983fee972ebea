package main

const (
	appPkg      = "internal/app"
	approvalPkg = "internal/approval"
	mcphttpPkg  = "internal/mcphttp"
	http1Pkg    = "internal/upstream/http1"
	keyringPkg  = "internal/keyring"
	operatorPkg = "internal/operator"
	policyPkg   = "internal/policy"
	taskPkg     = "task"
)

// mutations are the changes, from the innermost package to the outermost. Each
// would be a hole if it slipped in.
var mutations = []mutation{
	// Messages that two parsers could read differently.
	{
		"another charset is taken for UTF-8", "internal/mcphttp/body.go",
		`(contentType[0] == jsonType || isJSON(contentType[0]))`, `strings.HasPrefix(contentType[0], jsonType)`,
		mcphttpPkg, "^TestMediaTypeOfRequests$",
	},
	{
		"the end of a string is looked for in the wrong bytes", "jsonrpc/textend.go",
		`return ^(word | (word&^highBits + ^uint64(highBits))) & highBits`, `return (word - eachByte) &^ word & highBits`,
		"jsonrpc", "^FuzzTextEnd$",
	},
	{
		"duplicate names are read", "jsonrpc/scan.go",
		`if !s.distinct(s.names[outer:]) {`, `if false {`,
		"jsonrpc", "^TestParseRefusesText$",
	},
	{
		"case variants of known names are read", "jsonrpc/parse.go",
		`return bytes.EqualFold(name, []byte(k))`, `return false && bytes.EqualFold(name, []byte(k))`,
		"jsonrpc", "^TestParseRefuses",
	},
	{
		"invalid UTF-8 is read", "jsonrpc/scan.go",
		`if r == utf8.RuneError && n == 1 {`, `if r == utf8.RuneError && n == 0 {`,
		"jsonrpc", "^TestParseRefusesText$",
	},
	{
		"requests with a member called __proto__ are read", "jsonrpc/parse.go",
		`if e.inherits || s.inherits && e.method.Present() {`, `if false {`,
		"jsonrpc", "^TestParseRefuses",
	},

	// The rules of a held call.
	{
		"a claim does not check the digest", "task/apply.go",
		`if d, err := t.Call.Digest(); err != nil || d != t.CallDigest() {`, `if d, err := t.Call.Digest(); err != nil && d != t.CallDigest() {`,
		taskPkg, "^TestClaimChecksTheCall$",
	},
	{
		"requesters approve their own calls", "task/apply.go",
		`case (e.By == t.Owner || e.As.Own) && !a.SelfApproval:`, `case false:`,
		taskPkg, "^Test(Quorum|Refusals)$",
	},
	{
		"one person counts twice", "task/apply.go",
		`case slices.ContainsFunc(a.Approvals, func(d Decision) bool { return d.IsBy(append([]string{e.By}, e.As.Aliases...)...) }):`,
		`case len(a.Approvals) > 0 && !slices.Contains([]string{e.By}, e.By):`,
		taskPkg, "^Test(Quorum|Refusals)$",
	},
	{
		"one approval is a quorum", "task/machine.go",
		`return a == ActionApprove && len(t.Approval.Approvals) < t.Approval.Quorum`, `return false`,
		taskPkg, "^TestQuorum$",
	},
	{
		"an expired task goes on", "task/machine.go",
		`if !now.After(t.deadline()) {`, `if !now.After(t.deadline()) || true {`,
		taskPkg, "^TestLateEvents$",
	},
	{
		"another executor completes a run", "task/apply.go",
		"	if refused := t.runBy(cmp.Or(e.Executor, e.By)); refused != nil {\n		return refused\n	}\n	return t.keep(e.Result)", `	return t.keep(e.Result)`,
		taskPkg, "^TestRefusals$",
	},
	{
		"an earlier run undoes what a later one did", "task/upstream.go",
		`if e.By != "" || !now.After(x.LeaseUntil) {`, `if !now.After(x.LeaseUntil) {`,
		taskPkg, "^TestRunsOfOneProcess$",
	},
	{
		"a gate takes one of its runs for another", "internal/approval/core.go",
		`return c.cfg.Name + executorMark + rand.Text()`, `return c.cfg.Name + executorMark + rand.Text()[:0]`,
		approvalPkg, "^TestLostAnswerToQuestion$",
	},
	{
		"every scope admits every owner", "task/store.go",
		`return s.any || s.owner == owner && owner != ""`, `return true`,
		"task/memstore", "^TestStore$",
	},
	{
		"the chain of the journal skips the hash before", "task/journal.go",
		`b = append(b, l.Hash[:]...)`, `_ = l.Hash`,
		taskPkg, "^TestNextIsFixed$",
	},
	{
		"a change of state does not compare", "task/memstore/memstore.go",
		`if old.Version != t.Version-1 {`, `if false {`,
		"task/memstore", "^TestStore$",
	},

	{
		"what is sent besides is no part of the digest", "task/call.go",
		`if c.Also != "" {`, `if false {`,
		approvalPkg, "^TestAlsoIsPartOfTheDigest$",
	},

	{
		"an id can be guessed", "task/call.go",
		`_, _ = rand.Read(random[:])`, `_ = rand.Read`,
		taskPkg, "^TestNewID$",
	},
	{
		"the time of a call is enough to decide about it", "internal/approval/client/find.go",
		`len(found) == 1 && enough(found[0], start)`, `len(found) == 1`,
		"internal/approval/client", "^TestFind$",
	},

	// Programs that do not know the newest form of a store.
	{
		"tables of a newer program are used", "task/internal/sqlcore/migrate.go",
		`if m.From > m.To {`, `if false {`,
		"task/sqlitestore", "^TestSQLiteSchema$",
	},
	{
		"an older program writes to newer tables", "task/pgstore/pgstore.go",
		`		version, sqlcore.Patience.Milliseconds()))`, `		version+1000, sqlcore.Patience.Milliseconds()))`,
		"task/pgstore", "^TestPostgresOutdated$",
	},
	{
		"an older program writes to newer keys", "task/redisstore/format.go",
		`if format and format ~= '`, `if false and format ~= '`,
		"task/redisstore", "^TestOutdated$",
	},

	// Policy.
	{
		"a URI that is not in normal form is judged", "internal/policy/spelling.go",
		`case kind == Resource && isURL(name):`, `case false:`,
		policyPkg, "^TestSpellings$",
	},
	{
		"a slash at the end gets a resource past its rule", "internal/policy/spelling.go",
		`return strings.TrimRight(uri, "/")`, `return uri`,
		policyPkg, "^TestSpellingOfEnds$",
	},
	{
		"escapes hide what a server reads", "internal/policy/spelling.go",
		`case dotSegmentIn(plain):`, `case false:`,
		policyPkg, "^TestSpellings$",
	},
	{
		"policies read numbers that servers round", "internal/policy/value.go",
		`if !kept(n) {`, `if false {`,
		policyPkg, "^Test(Numbers|CedarVerdicts)$",
	},
	{
		"policies miss names in another case", "internal/policy/value.go",
		`if m.wanted.variant(name) {`, `if false {`,
		policyPkg, "^TestCedarVerdicts$",
	},
	{
		"what policies do not permit passes", "internal/policy/judge.go",
		`if !a.permitted {`, `if false {`,
		policyPkg, "^TestCedarVerdicts$",
	},
	{
		"the laxer workflow counts", "internal/policy/judge.go",
		`return x.Quorum > y.Quorum`, `return x.Quorum < y.Quorum`,
		policyPkg, "^TestCedar",
	},
	{
		"calls to an unknown upstream are judged", "internal/policy/judge.go",
		`case s.upstreams != nil && !slices.Contains(s.upstreams, c.Upstream):`, `case s.upstreams == nil && !slices.Contains(s.upstreams, c.Upstream):`,
		policyPkg, "^TestJudgeUnknownUpstream$",
	},

	// The desk.
	{
		"anybody may decide", "internal/approval/decide.go",
		`if !ok || !w.escalated(t, d.cfg.Now()).admits(who) {`, `if !ok {`,
		approvalPkg, "^TestDecideWho$",
	},
	{
		"the desk lets requesters approve", "internal/approval/decide.go",
		`own := w.SelfApproval && t.Approval != nil && t.Approval.SelfApproval`, `own := t.Approval != nil && t.Approval.SelfApproval`,
		approvalPkg, "^TestDecideSelfApprovalWithdrawn$",
	},
	{
		"names that differ in case are different people", "internal/approval/workflow.go",
		`return strings.EqualFold(name, other) })`, `return name == other })`,
		approvalPkg, "^TestDecideWho$",
	},
	{
		"a tampered message runs", "internal/approval/run.go",
		`case !intact(t):`, `case false:`,
		approvalPkg, "^TestRecheckTamperedMessage$",
	},
	{
		"an old approval is good for ever", "internal/approval/run.go",
		`case rn.stale(t, now):`, `case false:`,
		approvalPkg, "^TestR(echeck|unValidity)",
	},
	{
		"what policy denies now runs", "internal/approval/run.go",
		`if drift := rn.drift(t, v); drift != nil {`, `if drift := rn.drift(t, v); drift != nil && false {`,
		approvalPkg, "^TestRecheck$",
	},
	{
		"approvals that no longer count are enough", "internal/approval/workflow.go",
		`return count >= max(1, w.Quorum)`, `return true`,
		approvalPkg, "^TestRecheck",
	},
	{
		"redacted arguments are shown", "internal/casefile/redact.go",
		`whole, _, err := withoutRedacted(arguments, paths, most)`, `whole, _, err := withoutRedacted(arguments, paths[:0], most)`,
		approvalPkg, "^TestShownArguments$",
	},
	{
		"a cancellation is waited for without end", "internal/approval/cancel.go",
		`sending, stop := context.WithTimeout(About(ctx, t), c.settings().Cancel)`, `sending, stop := context.WithCancel(About(ctx, t))`,
		approvalPkg, "^TestCancelTimeout$",
	},
	{
		"expiries are not logged", "internal/approval/tasks.go",
		`ts.cfg.Log.WarnContext(About(ctx, t), "task overdue",`, `ts.cfg.Log.DebugContext(About(ctx, t), "task overdue",`,
		approvalPkg, "^TestExpiryIsLogged$",
	},
	{
		"a wait that begins in trouble ends", "internal/approval/contact.go",
		`for err == nil || errors.Is(err, task.ErrUnavailable) {`, `for err == nil {`,
		approvalPkg, "^TestWaitBegunInTrouble$",
	},

	{
		"an approval of what was not shown counts", "internal/casefile/shown.go",
		"	default:\n		return ErrViewChanged", "	default:\n		return nil",
		approvalPkg, "^TestApprovalNamesWhatWasShown$",
	},
	{
		"a call runs though its tool has changed", "internal/approval/drift.go",
		`|| !casefile.Redefined(held[i], now) {`, `|| casefile.Redefined(held[i], now) {`,
		mcphttpPkg, "^TestToolDrift$",
	},

	// Keys, and what is sealed with them.
	{
		"all purposes have one key", "internal/keyring/keyring.go",
		`"thoughtgate key 1: "+string(s.purpose)`, `"thoughtgate key 1: "`,
		keyringPkg, "^TestReplicas$",
	},
	{
		"values can be split elsewhere", "internal/keyring/keyring.go",
		`b = binary.BigEndian.AppendUint64(b, uint64(len(text)))`, `_ = binary.BigEndian.AppendUint64(nil, uint64(len(text)))`,
		keyringPkg, "^TestReplicas$",
	},
	{
		"a key that was given up opens", "internal/keyring/keyring.go",
		`func(k key) bool { return k.Until != 0 && k.Until <= now }`, `func(key) bool { return now < 0 }`,
		keyringPkg, "^TestRotate$",
	},

	// Limits on concurrent use by clients.
	{
		"one client may use everything", "internal/admission/admission.go",
		`case l.Client > 0 && p.byClient[c]+n > l.Client:`, `case false:`,
		"internal/admission", "^TestTry$",
	},
	{
		"anonymous clients may use everything", "internal/admission/admission.go",
		`l.Anonymous > 0 && !c.Identified() && p.anonymous+n > l.Anonymous:`, `false:`,
		"internal/admission", "^TestTry$",
	},
	{
		"a connection gives way while a request is under way", "internal/admission/place.go",
		`	l.pool.removeIdle(l)
	return !l.left`, `	return !l.left`,
		"internal/app", "^TestBusyConnectionsStay$",
	},
	{
		"a request runs though its connection has given way", "internal/admission/place.go",
		`return !l.left`, `return true`,
		"internal/admission", "^TestPlace$",
	},

	// Agents whose access has ended.
	{
		"a revoked agent is there", "internal/approval/contacts.go",
		`if r, ok := p.send.(Revocable); ok && r.Revoked() {`, `if r, ok := p.send.(Revocable); ok && r == nil {`,
		approvalPkg, "^TestRevokedOwnerIsGone$",
	},
	{
		"a revoked agent waits on", "internal/conversation/waiting.go",
		`if revoked = !recognition.Valid(); revoked {`, `if revoked = false; revoked {`,
		"internal/app", "^TestReloadRevokes$",
	},
	{
		"a revoked agent is served once its body has arrived", "internal/mcphttp/exchange.go",
		`problem = x.client.recogniseAgain()`, `problem = nil`,
		"internal/app", "^TestReloadRevokes$",
	},
	{
		"a removed authority counts on open connections", "internal/app/reload.go",
		` || !a.agents.authorities.Equal(authorities) {`, ` {`,
		"internal/app", "^TestReloadAuthorities$",
	},
	{
		"a certificate counts after its end", "internal/identity/certificate.go",
		`CurrentTime: now,`, `CurrentTime: shown[0].NotBefore,`,
		"internal/identity", "^TestCertificateOfOpenConnection$",
	},
	{
		"a stranger names itself in another spelling of the proxy's header", "internal/identity/proxy.go",
		`a, _ = UsualSpelling(a)`, `a = strings.ReplaceAll(a, "_", "-")`,
		"internal/identity", "^TestProxy$",
	},
	{
		"an agent's short token is good", "internal/identity/identity.go",
		`if len(token) >= bearer.Shortest {`, `if token != "" {`,
		"internal/identity", "^TestStaticTokens$",
	},
	{
		"names of any length are held", "internal/approval/outgoing.go",
		`if len(subject) > maxSubject {`, `if len(subject) > 100*maxSubject {`,
		"internal/mcphttp", "^TestLongNames$",
	},
	{
		"tokens are not compared", "internal/bearer/bearer.go",
		`return subtle.ConstantTimeCompare(h[:], other[:]) == 1`, `return subtle.ConstantTimeCompare(h[:], other[:]) >= 0`,
		"internal/bearer", "^TestHash$",
	},
	{
		"the first of two tokens counts", "internal/bearer/bearer.go",
		`if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") {`, `if !strings.EqualFold(scheme, "Bearer") {`,
		"internal/bearer", "^TestIn$",
	},

	// Headers that must repeat the message.
	{
		"Mcp-Method may differ from the method", "internal/wire/era.go",
		`return mismatch("Mcp-Method and method differ")`, `return nil`,
		"internal/wire", "^TestMirroredMethod$",
	},
	{
		"Mcp-Name may differ from the name", "internal/wire/era.go",
		`return mismatch("Mcp-Name and the message differ")`, `return nil`,
		"internal/wire", "^Test(Classify|MirroredNames)$",
	},

	// The agents' listener.
	{
		"any Host is served on loopback", "internal/mcphttp/guard.go",
		`if !g.hostAllowed(r.Host) {`, `if false {`,
		mcphttpPkg, "^Test(Conversations|Guard)",
	},
	{
		"any Origin is served", "internal/mcphttp/guard.go",
		`if !g.originAllowed(origin) && (!g.SameOrigin || !sameHost(origin, r.Host)) {`, `if !g.originAllowed(origin) && false {`,
		mcphttpPkg, "^Test(Conversations|Guard)",
	},
	{
		"a header in another spelling passes", "internal/mcphttp/guard.go",
		`return &wire.Problem{Type: wire.InvalidRequest, Detail: "a header could be taken for " + usual}`, `return nil`,
		mcphttpPkg, "^TestAmbiguousHeaders$",
	},
	{
		"a sealed text is good for every owner", "internal/keyring/keyring.go",
		`for _, text := range bound {`, `for _, text := range bound[:min(1, len(bound))] {`,
		keyringPkg, "^TestReplicas$",
	},
	{
		"a sealed text is good for every principal", "internal/keyring/keyring.go",
		`for _, text := range bound {`, `for _, text := range bound[:min(1, len(bound))] {`,
		mcphttpPkg, "^TestReplayedTexts$",
	},
	{
		"a sealed text is good for every use", "internal/keyring/keyring.go",
		`for _, text := range bound {`, `for _, text := range bound[min(1, len(bound)):] {`,
		mcphttpPkg, "^TestReplayedTexts$",
	},
	{
		"a state is good for another call", "internal/conversation/hold.go",
		`if !h.hub.cfg.Desk.Same(t, m.Raw) {`, `if false {`,
		mcphttpPkg, "^TestModernRounds$",
	},
	{
		"calls with other metadata are taken for the same", "internal/approval/identity.go",
		`if !slices.Contains(ignored, name) && !slices.Contains(ignored, anyMeta) {`, `if ignored == nil {`,
		mcphttpPkg, "^TestAttachWithOtherMeta$",
	},
	{
		"what runs is not compared with all of what was shown", "task/machine.go",
		`t.Digest, t.Whole = d.Same, &digest`, `t.Digest, t.Whole = d.Same, &d.Same`,
		mcphttpPkg, "^TestAttachedCallRunsAsShown$",
	},
	{
		"a host that uses a proxy is taken for one on this machine", "internal/mcphttp/localuser.go",
		`!slices.ContainsFunc(forwarded[:], proxied) && `, `!slices.ContainsFunc(forwarded[:0], proxied) && `,
		mcphttpPkg, "^TestLocalHostAttachesInAnotherSession$",
	},
	{
		"a cancellation does not wait for the store", "internal/conversation/cancel.go",
		`	case <-ctx.Done():
		return task.Ref{}, false`, `	default:
		return task.Ref{}, false`,
		mcphttpPkg, "^TestCancelWhileStored$",
	},
	{
		"a wait that saw nothing seals no task", "internal/conversation/waiting.go",
		`if e.task.ID == "" { // the store`, `if false { // the store`,
		mcphttpPkg, "^TestWaitOverBeforeTheFirstLook$",
	},
	{
		"what is hidden is written to the log", "internal/logging/logging.go",
		`w = plain.NewWriter(w)`, `_ = plain.NewWriter(w)`,
		"internal/app", "^TestHostileTextInLog$",
	},
	{
		"lines about a call do not name its request", "internal/approval/hold.go",
		`Correlation: c.Correlation, Peer`, `Correlation: "", Peer`,
		"internal/app", "^TestLinesAboutCall$",
	},
	{
		"changes of state are not logged", "internal/approval/record.go",
		`logMoves(About(ctx, t), r.log, notes)`, `logMoves(About(ctx, t), r.log, nil)`,
		"internal/app", "^TestCancellationIsLogged$",
	},
	{
		"a limited time to live is not logged", "internal/approval/extend.go",
		`c.cfg.Log.WarnContext(ctx, "time to live limited",`, `c.cfg.Log.DebugContext(ctx, "time to live limited",`,
		mcphttpPkg, "^TestTTLLimits$",
	},
	{
		"a stuck upstream holds up housekeeping", "internal/approval/cancel.go",
		"	go func() {\n		defer c.work.running.Done()\n		c.logUnsettled(", "	func() {\n		defer c.work.running.Done()\n		c.logUnsettled(",
		mcphttpPkg, "^TestExpiryCancelsUpstream$",
	},
	{
		"a poll is no span", "internal/upstream/caller.go",
		`c.Step(ctx, tracing.StepPoll, t)`, `c.Step(ctx, tracing.StepListen, t)`,
		mcphttpPkg, "^TestStepsAreTraced$",
	},
	{
		"the upstream of a held call does not get its span", "internal/upstream/httpclient/header.go",
		`header.Set("Traceparent", parent)`, `header.Set("Traceparent", "")`,
		mcphttpPkg, "^TestStepsAreTraced$",
	},
	{
		"a step is not linked to the request that made the call", "internal/upstream/caller.go",
		`StartStep(ctx, s, approval.TraceOf(t))`, `StartStep(ctx, s, "")`,
		mcphttpPkg, "^TestStepsAreTraced$",
	},
	{
		"listening is a span without its clients", "internal/conversation/subscribe.go",
		`span.SetStep(tracing.StepAttrs{Clients: u.clients()})`, `span.SetStep(tracing.StepAttrs{Clients: 0})`,
		mcphttpPkg, "^TestListeningIsTraced$",
	},
	{
		"every header of an upstream is passed on", "internal/mcphttp/relay.go",
		`for _, name := range passedOn {`, `for name := range from {`,
		mcphttpPkg, "^TestReplyHeaders$",
	},
	{
		"a large answer is not checked while it passes", "internal/conversation/check.go",
		"if !c.request.Expects(", "if false && !c.request.Expects(",
		mcphttpPkg, "^TestSlowForgery",
	},
}
