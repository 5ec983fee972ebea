package main

// operatorMutations let operators do what they may not, or others in their place.
var operatorMutations = []mutation{
	{
		"a generated token comes back", "internal/app/operators.go",
		`o.madeToken = "" // it`, `o.log.Debug("") // it`,
		appPkg, "^TestMadeTokenEnds$",
	},
	{
		"a gate overwrites the token of another", "internal/app/token.go",
		`o.tokenLock, err = filelock.Lock(name + ".lock")`, `o.tokenLock, err = os.Open(os.DevNull)`,
		appPkg, "^TestTokenFileOfAnotherGate$",
	},
	{
		"a session that is put back goes on", "internal/operator/session.go",
		`if a.ended.has(record) {`, `if false {`,
		operatorPkg, "^TestReplayedSession$",
	},
	{
		"a request outlives its session", "internal/operator/session.go",
		`if ends := o.Expires(); !ends.IsZero() {`, `if ends := o.Expires(); !ends.IsZero() && false {`,
		operatorPkg, "^TestSessionEndsWithoutStore$",
	},
	{
		"a session goes on after the logout", "internal/operator/login.go",
		`if err := a.drop(r.Context(), who.session.record); err != nil {`, `if err := r.Context().Err(); err != nil {`,
		operatorPkg, "^TestSessionEnds$",
	},
	{
		"a session never ends", "internal/operator/session.go",
		` || a.cfg.Now().Unix() >= s.Expires {`, ` {`,
		operatorPkg, "^TestSessionEnds$",
	},
	{
		"logins are not limited", "internal/operator/login.go",
		`wait := a.changes.take(name, a.cfg.Now())`, `wait := 0 * a.changes.take(name, a.cfg.Now())`,
		operatorPkg, "^TestLoginsLimited$",
	},
	{
		"an operator's short token is good", "internal/operator/token.go",
		`if hash.Equal(t.Hash) && len(shown) >= bearer.Shortest {`, `if hash.Equal(t.Hash) {`,
		operatorPkg, "^TestShortTokens$",
	},
	{
		"a role includes those above it", "internal/operator/operator.go",
		`return theirs >= 0 && mine >= theirs`, `return theirs >= 0 && mine >= 0`,
		operatorPkg, "^TestRoles$",
	},
	{
		"a misspelled filter selects everything", "internal/approval/api/answer.go",
		`case !slices.Contains(known, name):`, `case false:`,
		"internal/approval/api", "^TestUnknownParameters$",
	},
	{
		"roles are not checked", "internal/operator/authorize.go",
		`if !o.Role.Includes(role) {`, `if false {`,
		operatorPkg, "^TestRoles$",
	},
	{
		"other sites send forms", "internal/operator/authorize.go",
		`if o.Way != ByToken && !a.sameSite(r) {`, `if o.Way != ByToken && !a.sameSite(r) && !a.knowsForm(r, o) {`,
		operatorPkg, "^TestCrossSite$",
	},
	{
		"forms need no token", "internal/operator/authorize.go",
		`if o.Way != ByToken && !a.knowsForm(r, o) {`, `if o.Way != ByToken && !a.knowsForm(r, o) && !a.sameSite(r) {`,
		operatorPkg, "^TestCrossSite$",
	},
	{
		"rights that end while a body arrives count", "internal/operator/authorize.go",
		`now, err := a.latest().again(r.Context(), o)`, `now, err := o, (*Error)(nil)`,
		operatorPkg, "^TestRightsEndDuringBody$",
	},
	{
		"the token is sent to where the last inbox was", "internal/localdesk/localdesk.go",
		`if serves, err := filelock.IsLocked(file); err != nil || !serves {`, `if _, err := filelock.IsLocked(file); err != nil {`,
		"internal/localdesk", "^TestElected$",
	},
	{
		"other users of the machine use the inbox of a desk", "internal/localdesk/listener.go",
		`case uid == os.Getuid(), uid == root:`, `case uid >= root:`,
		"internal/localdesk", "^TestOtherUsers$",
	},
	{
		"sessions that a stranger has outlive the move of the inbox", "internal/localdesk/listener.go",
		`if err := l.endSessions(ctx); err != nil {`, `if err := ctx.Err(); err != nil {`,
		"internal/localdesk", "^TestMoveEndsSessions$",
	},
	{
		"a connection that its program has closed is root's", "internal/localuser/socket_linux.go",
		`if order.Uint32(answer[inodeAt:]) == 0 {`, `if false {`,
		"internal/localuser", "^TestOfClosedConnection$",
	},
}
