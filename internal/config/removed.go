package config

import "regexp"

// removed explains settings that earlier versions had. Paths have no list indexes, and * for
// the name of a channel. A setting that still exists was a group in earlier versions.
var removed = map[string]string{
	"batch":                              "a batch in which something needs approval is always held as a whole",
	"channels.*.email.ca_file":           "add the authority to those of the system, or name its file in SSL_CERT_FILE",
	"channels.*.email.timeout":           "a mail server has 15 seconds for each message",
	"channels.*.webhook.answers.groups":  "name answers.approver itself in the approvers of workflows",
	"channels.*.webhook.timeout":         "the other system has 10 seconds to answer",
	"default":                            "a workflow, reason or mode stands in a last rule with match: \"*\"",
	"drafts":                             "agents of 2026-07-28 always get the approval fields of the MCP drafts",
	"execution.timeout":                  "approved calls have as long as others: limits.call_timeout",
	"identity.jwt.algorithms":            "all public-key algorithms are accepted: RS, PS, ES and EdDSA",
	"identity.jwt.clock_skew":            "clocks may differ by one minute",
	"limits.max_body_memory":             "it is 256 times limits.max_request_body, up to 256MiB, or eight times if that is more",
	"limits.max_connections_per_client":  "one client may have a quarter of limits.max_connections",
	"limits.max_line":                    "a server may write lines of a sixteenth of limits.max_result, at most 1GiB",
	"limits.max_requests_per_client":     "one client may have a quarter of limits.max_concurrent_requests",
	"limits.max_streams_per_client":      "one client may have a quarter of limits.max_streams",
	"limits.read_timeout":                "clients have as long as upstreams: limits.request_timeout",
	"limits.write_timeout":               "clients have as long as upstreams: limits.request_timeout",
	"notifications.max_per_owner":        "one owner may have twice tasks.max_pending_per_owner",
	"operators.max_connections":          "operators may have 256 connections",
	"operators.oidc.allowed_groups":      "list the groups in operators.oidc.roles, as group:NAME",
	"operators.oidc.name":                "people are shown the host of operators.oidc.issuer",
	"operators.oidc.recheck":             "the provider is asked again every 15 minutes",
	"tasks.max_pending_per_address":      "agents without an identity at one address may have a quarter of tasks.max_pending",
	"tasks.max_pending_unknown":          "agents that cannot be told apart may have a fiftieth of tasks.max_pending",
	"tasks.variables.max_count":          "a task may have 64 variables; tasks.variables.max_total bounds their size",
	"tasks.variables.max_name":           "a name may have 128 bytes; tasks.variables.max_total bounds the size of all",
	"tasks.variables.max_value":          "a value may have a quarter of tasks.variables.max_total",
	"upstreams.idle_timeout":             "connections are kept one and a half times limits.keepalive, and processes ten times as long",
	"upstreams.max_idle_connections":     "256 unused connections are kept",
	"upstreams.max_processes_per_client": "one client may have a quarter of max_processes",
	"waiting.pending":                    "the answer to a call that is still waiting is always an error, so that models call again",
	"waiting.request_meta":               "the gate knows the members of _meta that identical calls may differ in",
}

// otherNames are words that other programs have for settings, with the setting that is meant.
var otherNames = map[string]string{
	"rules.tool": "match", "rules.tools": "match", "rules.pattern": "match", "rules.decision": "action", "rules.effect": "action",
}

var (
	listIndex   = regexp.MustCompile(`\[\d+\]`)
	channelName = regexp.MustCompile(`^channels\.[^.]+`)
)

// whyUnknown returns the message for an unknown setting. Hint suggests another spelling.
func whyUnknown(path, hint string) string {
	setting := listIndex.ReplaceAllString(path, "")
	if text, ok := removed[channelName.ReplaceAllString(setting, "channels.*")]; ok {
		return "was removed: " + text
	}
	if meant, ok := otherNames[setting]; ok {
		hint = "; did you mean " + meant + "?"
	}
	return "unknown key" + hint
}
