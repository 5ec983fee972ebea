package main

// channelMutations are about asking people elsewhere than in the inbox.
var channelMutations = []mutation{
	{
		"a message that may have arrived is forgotten", "internal/channel/outbox.go",
		`return !unsent`, `return !unsent && err == nil`,
		"internal/channel", "^TestDecidedWhileUnsure$",
	},
	{
		"an unsigned answer decides", "internal/channel/webhook/sign.go",
		`if !valid || id == "" {`, `if !valid && id == "" {`,
		"internal/channel/webhook", "^TestVerify$",
	},
	{
		"an old answer decides", "internal/channel/webhook/sign.go",
		`now.Sub(time.Unix(seconds, 0)).Abs() > tolerance`, `now.Sub(time.Unix(seconds, 0)).Abs() > 1000*tolerance`,
		"internal/channel/webhook", "^TestVerify$",
	},
	{
		"an answer for a channel without a system decides", "internal/approval/api/channels.go",
		`if !known || errors.Is(err, webhook.ErrUnsigned) {`, `if !known && false || errors.Is(err, webhook.ErrUnsigned) {`,
		appPkg, "^TestWebhookAnswersRefused$",
	},
	{
		"a webhook reaches private addresses", "internal/channel/webhook/webhook.go",
		`if !ip.IsGlobalUnicast() || ip.IsPrivate() {`, `if false {`,
		"internal/channel/webhook", "^TestPublicOnly$",
	},
	{
		"a webhook follows redirects", "internal/channel/webhook/webhook.go",
		`return http.ErrUseLastResponse`, `return nil`,
		appPkg, "^TestWebhookStaysOutside$",
	},
	{
		"somebody with another e-mail address counts again in Slack", "internal/channel/slack/people.go",
		`[]string{"slack:" + id}`, `nil`,
		"internal/channel/slack", "^TestOneUserCountsOnce$",
	},
	{
		"a bot decides in Slack", "internal/channel/slack/people.go",
		`if user.IsBot || user.Deleted`, `if user.Deleted`,
		"internal/channel/slack", "^TestRefused$",
	},
	{
		"an address that Slack has not confirmed counts", "internal/channel/slack/people.go",
		`if !user.IsEmailConfirmed {`, `if false {`,
		"internal/channel/slack", "^TestRefused$",
	},
	{
		"a call is approved in Slack that was not shown as a whole", "internal/channel/slack/blocks.go",
		`if !whole || err != nil`, `if !whole && false || err != nil`,
		"internal/channel/slack", "^TestHostile$",
	},
	{
		"a call of a changed tool is approved in Slack", "internal/channel/slack/blocks.go",
		`whole = whole && fits(a) && q.Changed == nil`, `whole = whole && fits(a)`,
		"internal/channel/slack", "^TestToolChanged$",
	},
	{
		"a call is escalated at once", "internal/approval/workflow.go",
		`if at.Before(t.CreatedAt.Add(patience)) {`, `if at.Before(t.CreatedAt.Add(patience * 0)) {`,
		approvalPkg, "^TestEscalation$",
	},
	{
		"an approval counts although the call was not escalated then", "internal/approval/workflow.go",
		`if w.escalated(t, a.At).admits(who) {`, `if w.escalated(t, t.ExpiresAt).admits(who) {`,
		approvalPkg, "^TestRecheckEscalation$",
	},
	{
		"a mail is sent in the clear if the server wants that", "internal/channel/email/email.go",
		`if offered, _ := c.Extension("STARTTLS"); !offered {
			return nil, errPlain
		}`, `if offered, _ := c.Extension("STARTTLS"); !offered {
			return c, nil
		}`,
		"internal/channel/email", "^TestEncryption$",
	},
	{
		"a mail has the arguments that it should not have", "internal/channel/email/message.go",
		`if m.cfg.Arguments && q.Stage`, `if q.Stage`,
		"internal/channel/email", "^TestMail$",
	},
	{
		"a subject is sent as it is", "internal/channel/email/message.go",
		`header("Subject", words(subject(q)))`, `header("Subject", q.Headline()+": "+q.Approval.Tool)`,
		"internal/channel/email", "^TestHostileNames$",
	},
	{
		"a push goes to those who may not decide", "internal/channel/push/push.go",
		`if may && !seen[k.Endpoint] {`, `if (may || err == nil) && !seen[k.Endpoint] {`,
		"internal/channel/push", "^TestPush$",
	},
	{
		"a push goes to somebody who is no approver any more", "internal/channel/push/subscription.go",
		`case o.err == nil && o.who.Role.Includes(operator.Approver):`, `case o.err == nil:`,
		"internal/channel/push", "^TestSubscriptionEnds$",
	},
	{
		"a push goes to an endpoint without encryption", "internal/channel/push/subscription.go",
		`endpoint.Scheme != "https" || `, ``,
		"internal/channel/push", "^TestSubscriptionsRefused$",
	},
	{
		"viewers are notified", "internal/inbox/inbox.go",
		`route("POST /push/subscribe", operator.Approver, i.subscribe)`, `route("POST /push/subscribe", operator.Viewer, i.subscribe)`,
		"internal/inbox", "^TestSubscribe$",
	},
	{
		"a wrap asks about the calls of other servers", "internal/app/approvals.go",
		`return t.Owner == ap.owner`, `return t.Owner != ""`,
		appPkg, "^TestWrapsAskForThemselves$",
	},
	{
		"a gate asks about the calls of others", "internal/app/approvals.go",
		`return ap.servers.named(t.Call.Upstream) != nil && ap.desk.Holds(t)`, `return ap.servers.named(t.Call.Upstream) != nil`,
		appPkg, "^TestGatesAskForThemselves$",
	},
	{
		"a call is approved in Slack whose name was cut", "internal/channel/slack/blocks.go",
		`whole = whole && fits(a)`, `whole = whole && (fits(a) || whole)`,
		"internal/channel/slack", "^TestLongName$",
	},
}
