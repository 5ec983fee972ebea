package main

// library are changes of module gosdktask: who owns a task, and who finds it.
var library = []mutation{
	{
		"a user is taken for a client that nobody has identified", "gosdktask/middleware.go",
		`return ownerUser + extra.TokenInfo.UserID, true`, `return extra.TokenInfo.UserID, true`,
		"gosdktask", "^TestOwners$",
	},
	{
		"a user that the program names is taken for a client that nobody has identified", "gosdktask/middleware.go",
		`return ownerUser + owner, true`, `return owner, true`,
		"gosdktask", "^TestOwners$",
	},
	{
		"whoever comes over HTTP counts as the client of a pipe", "gosdktask/middleware.go",
		`case extra == nil || extra.Header == nil:`, `case true:`,
		"gosdktask", "^TestOwners$",
	},
	{
		"a token without a user names one", "gosdktask/middleware.go",
		`case extra.TokenInfo != nil && extra.TokenInfo.UserID != "":`, `case extra.TokenInfo != nil:`,
		"gosdktask", "^TestTokenWithoutUser$",
	},
	{
		"tasks are made without their owner", "gosdktask/middleware.go",
		`Owner: owner, TTL: ttl.Value,`, `Owner: owner[:0] + ownerUnknown, TTL: ttl.Value,`,
		"gosdktask", "^TestOwners$",
	},
	{
		"anybody finds and ends the tasks of an owner", "gosdktask/middleware.go",
		`request := mcptask.Request{Dialect: d, Owner: owner, Method: method}`,
		`request := mcptask.Request{Dialect: d, Owner: ownerUser + "alice" + owner[:0], Method: method}`,
		"gosdktask", "^TestOwners$",
	},
	{
		"clients that nobody has identified list each other's tasks", "gosdktask/middleware.go",
		`if method == mcptask.MethodList && !known {`, `if false && !known {`,
		"gosdktask", "^TestTask2025$",
	},
	{
		"clients that nobody has identified are told that they may list", "gosdktask/middleware.go",
		`List: known}.Capability()`, `List: known || true}.Capability()`,
		"gosdktask", "^TestTask2025$",
	},
	{
		"a subscription finds the tasks of another owner", "gosdktask/notify.go",
		`task.OwnedBy(owner).Ref(task.ID(id))`, `task.AnyOwner().Ref(task.ID(id))`,
		"gosdktask", "^TestSubscriptionOfAnother$",
	},
	{
		"a subscription is told of the tasks of another owner", "gosdktask/notify.go",
		`		if _, err := t.opts.Store.Get(ctx, task.OwnedBy(owner).Ref(task.ID(id))); err == nil {
			mine = append(mine, id)
		}`,
		`		if found, err := t.opts.Store.Get(ctx, task.AnyOwner().Ref(task.ID(id))); err == nil {
			mine, owner = append(mine, id), found.Owner
		}`,
		"gosdktask", "^TestSubscriptionOfAnother$",
	},
	{
		"a session is told of the tasks of another", "gosdktask/notify.go",
		`			if to := t.lines.to(session); to != nil {
				return to.send(message)
			}`,
		`			t.lines.mu.Lock()
			defer t.lines.mu.Unlock()
			for _, to := range t.lines.open {
				_ = to.send(message)
			}
			_ = session`,
		"gosdktask", "^TestSessionIsTold$",
	},
	{
		"a header may name another task than the request", "gosdktask/transport.go",
		`if strings.TrimSpace(h.Get("Mcp-Name")) == r.Params.TaskID {`, `if strings.TrimSpace("") == "" {`,
		"gosdktask", "^TestTask2026$",
	},
	{
		"a client writes variables of the server", "gosdktask/middleware.go",
		`{{Side: task.ClientSide, Values:`, `{{Side: task.ServerSide, Values:`,
		"gosdktask", "^TestVariables$",
	},
}
