package main

// observed are changes of what counters, logs and spans show, and of
// how cancellation and rest are done. Tests that claimed these once passed without
// them.
var observed = []mutation{
	{
		"an error of the upstream counts as success", "internal/mcphttp/account.go",
		`x.gone || x.failed || x.out.status`, `x.gone || x.out.status`,
		mcphttpPkg, "^TestUpstreamErrorsAreCounted$",
	},
	{
		"a status of the upstream does not count", "internal/mcphttp/account.go",
		` || x.out.status >= http.StatusBadRequest {`, ` || x.out.status > 2*http.StatusBadRequest {`,
		mcphttpPkg, "^TestUpstreamErrorsAreCounted$",
	},
	{
		"denied calls fill the log", "internal/gate/judge.go",
		`g.log.LogAttrs(limited(ctx, c, j, v), level, "verdict",`, `g.log.LogAttrs(ctx, level, "verdict",`,
		appPkg, "^TestStrangersLines$",
	},
	{
		"denials are not counted", "internal/gate/judge.go",
		`g.metrics.Verdict(string(j.Kind), string(v.Action), observed)`, `_ = observed`,
		appPkg, "^TestCountersByOutcome$",
	},
	{
		"held calls are not counted", "internal/app/measure.go",
		`b.metrics.TaskHeld(e.Task.Call.Name)`, `_ = e.Task.Call.Name`,
		appPkg, "^TestHeldCallsAreCounted$",
	},
	{
		"calls that are one too many are not counted", "internal/app/measure.go",
		`b.metrics.TaskRefused()`, `_ = b.metrics`,
		appPkg, "^TestHeldCallsAreCounted$",
	},
	{
		"changes of state are not counted", "internal/app/measure.go",
		`b.metrics.TaskMoved(string(last.From), string(last.To))`, `_ = b.metrics`,
		appPkg, "^TestHeldCallsAreCounted$",
	},
	{
		"ends of tasks are not counted", "internal/app/measure.go",
		`b.metrics.TaskEnded(t.Call.Name, string(last.To))`, `_ = b.metrics`,
		appPkg, "^TestHeldCallsAreCounted$",
	},
	{
		"a wait without a decision is not counted", "internal/conversation/hold.go",
		`h.hub.cfg.Metrics.WaitEnded(h.waitResult(t, err), time.Since(began))`, `_ = began`,
		appPkg, "^TestHeldCallIsObserved$",
	},
	{
		"a cancelled call runs on", "internal/approval/run.go",
		`more = rn.goesOn(ctx, t.ID, t.Execution.Executor)`, `more = true`,
		approvalPkg, "^TestCancelExecuting$",
	},
	{
		"a call that runs cannot be cancelled", "task/machine.go",
		`ActionComplete: Completed, ActionLapse: Failed,
		ActionFail: Failed, ActionCancel: Cancelled, `, `ActionComplete: Completed, ActionLapse: Failed,
		ActionFail: Failed, `,
		taskPkg, "^TestEdgeCases$",
	},
	{
		"housekeeping takes up what upstreams do by themselves", "internal/approval/housekeeping.go",
		`States: []task.State{task.Approved}, Limit: sweepBatch}`, `States: []task.State{task.Approved, task.Executing}, Limit: sweepBatch}`,
		approvalPkg, "^TestNestedCallNeedsNoWork$",
	},
	{
		"a nested task has a lease that must be renewed", "task/upstream.go",
		`if e.Release {`, `if false {`,
		approvalPkg, "^TestNestedCallNeedsNoWork$",
	},
	{
		"an expiry is logged without its age", "internal/approval/tasks.go",
		`"age_seconds", age.Seconds(),`, `"age_seconds", 0*age.Seconds(),`,
		approvalPkg, "^TestExpiryIsLogged$",
	},
	{
		"fetching a result is no span", "internal/upstream/caller.go",
		`c.Step(ctx, tracing.StepResult, t)`, `c.Step(ctx, tracing.StepListen, t)`,
		mcphttpPkg, "^TestStepsAreTraced$",
	},
	{
		"the span of a result does not say how large it was", "internal/upstream/caller.go",
		`b.span.SetStep(tracing.StepAttrs{Bytes: b.read})`, `b.span.SetStep(tracing.StepAttrs{Bytes: 1})`,
		mcphttpPkg, "^TestStepsAreTraced$",
	},
	{
		"the span of a call does not say how it was made", "internal/upstream/caller.go",
		`span.SetStep(tracing.StepAttrs{Path: e.path})`, `span.SetStep(tracing.StepAttrs{})`,
		mcphttpPkg, "^TestStepsAreTraced$",
	},
	{
		"listening is no span", "internal/conversation/subscribe.go",
		`c.Step(ctx, tracing.StepListen, t)`, `c.Step(ctx, tracing.StepPoll, t)`,
		mcphttpPkg, "^TestListeningIsTraced$",
	},
}
