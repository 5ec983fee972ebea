package config

import (
	"slices"
	"strings"
)

// A Variable is an environment variable that the gate obeys.
type Variable struct {
	Name     string
	Settings []string // paths of the settings it overrides; none for the name of the file
	read     func(value string) []string
}

// The settings that variables override in a way of their own.
const (
	approvalTimeout = "workflows.default.timeout"
	forceRequired   = "tasks.force_required"
)

// Variables returns every environment variable that the gate obeys. Of two for
// the same setting the later one wins. One that is empty counts as not set.
func Variables() []Variable {
	is := func(settings ...string) []string { return settings }
	return []Variable{
		{"THOUGHTGATE_CONFIG", nil, asIs},
		{"THOUGHTGATE_LISTEN", is("listen"), asIs},
		{"THOUGHTGATE_OPERATORS_LISTEN", is("operators.listen"), asIs},
		{tokenVariable, is("operators.token"), asIs},
		{"THOUGHTGATE_UPSTREAM", is("upstreams"), byComma},
		{"THOUGHTGATE_STORE", is("store"), asIs},
		{"THOUGHTGATE_STORE_KEYS", is("storage.keys"), asIs},
		{"THOUGHTGATE_STATE_DIR", is("state_dir"), asIs},
		{"THOUGHTGATE_UPSTREAM_CONNECT_TIMEOUT_SECS", is("upstreams[].connect_timeout"), seconds},
		{"THOUGHTGATE_REQUEST_TIMEOUT_SECS", is("limits.request_timeout"), seconds},
		{"THOUGHTGATE_UPSTREAM_REQUEST_TIMEOUT_SECS", is("limits.request_timeout"), seconds},
		{"THOUGHTGATE_SYNC_FORWARD_TIMEOUT_SECS", is("limits.call_timeout", "execution.timeout"), seconds},
		{"THOUGHTGATE_UPSTREAM_CANCEL_TIMEOUT_SECS", is("execution.cancel_timeout"), seconds},
		{"THOUGHTGATE_LAZY_POLL_TIMEOUT_SECS", is("execution.poll_timeout"), seconds},
		{"THOUGHTGATE_TOOLS_FETCH_TIMEOUT_MS", is("limits.tools_fetch_timeout"), milliseconds},
		{"THOUGHTGATE_TOOLS_MAX_PAGES", is("limits.tools_max_pages"), asIs},
		{"THOUGHTGATE_KEEPALIVE_SECS", is("limits.keepalive"), seconds},
		{"THOUGHTGATE_MAX_CONCURRENT_REQUESTS", is("limits.max_concurrent_requests"), asIs},
		{"THOUGHTGATE_MAX_REQUEST_BODY_BYTES", is("limits.max_request_body"), asIs},
		{"THOUGHTGATE_APPROVAL_TIMEOUT_SECS", is(approvalTimeout), seconds},
		{"THOUGHTGATE_TASK_DEFAULT_TTL_SECS", is("tasks.default_ttl"), seconds},
		{"THOUGHTGATE_TASK_DEFAULT_TTL_MS", is("tasks.default_ttl"), milliseconds},
		{"THOUGHTGATE_TASK_MAX_TTL_SECS", is("tasks.max_ttl"), seconds},
		{"THOUGHTGATE_TASK_MAX_TTL_MS", is("tasks.max_ttl"), milliseconds},
		{"THOUGHTGATE_TASK_CLEANUP_INTERVAL_SECS", is("tasks.cleanup_interval"), seconds},
		{"THOUGHTGATE_TASK_MAX_PENDING_PER_PRINCIPAL", is("tasks.max_pending_per_owner"), asIs},
		{"THOUGHTGATE_TASK_MAX_PENDING_GLOBAL", is("tasks.max_pending"), asIs},
		{"THOUGHTGATE_TASK_MIN_POLL_INTERVAL_SECS", is("tasks.min_poll_interval"), seconds},
		{"THOUGHTGATE_TASK_MAX_POLL_INTERVAL_SECS", is("tasks.max_poll_interval"), seconds},
		{"THOUGHTGATE_TASK_FORCE_REQUIRED", is(forceRequired), everyComma},
		{"THOUGHTGATE_SSE_CLIENT_IDLE_TIMEOUT_SECS", is("notifications.idle_timeout"), seconds},
		{"THOUGHTGATE_SSE_FORWARDING_ENABLED", is("notifications.forward"), asIs},
		{"THOUGHTGATE_SSE_RECONNECT_DELAY_SECS", is("notifications.reconnect_delay"), seconds},
		{"THOUGHTGATE_SSE_RECONNECT_MAX_ATTEMPTS", is("notifications.reconnect_attempts"), asIs},
		{"THOUGHTGATE_LOG_LEVEL", is("telemetry.log.level"), asIs},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", is("telemetry.traces.endpoint"), tracesBelow},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", is("telemetry.traces.endpoint"), asIs},
	}
}

func asIs(value string) []string { return []string{value} }

// byComma splits name=URL,name=URL. A URL without a name may have commas of its own.
func byComma(value string) []string {
	if name, _, ok := strings.Cut(value, "="); !ok || !isName(name) {
		return []string{value}
	}
	return strings.Split(value, ",")
}

func everyComma(value string) []string { return strings.Split(value, ",") }

func seconds(value string) []string { return []string{withUnit(value, "s")} }

func milliseconds(value string) []string { return []string{withUnit(value, "ms")} }

// withUnit gives a bare number its unit. A value with a unit of its own, such as
// 30s, means what it says.
func withUnit(value, unit string) string {
	if only(value, digits) {
		return value + unit
	}
	return value
}

// tracesBelow adds what the OpenTelemetry exporters add to the endpoint that
// all signals share.
func tracesBelow(value string) []string {
	return []string{strings.TrimRight(value, "/") + "/v1/traces"}
}

// overrides returns what the gate's own variables say.
func (env environment) overrides() []Override {
	var all []Override
	for _, v := range Variables() {
		value := env.vars[v.Name]
		if value == "" {
			continue
		}
		for _, setting := range v.Settings {
			all = append(all, Override{Source: v.Name, Setting: setting, Values: v.read(value)})
		}
	}
	return all
}

// operatorsURL is a variable of the commands for approvers, who may well have it
// set where the gate is started.
const operatorsURL = "THOUGHTGATE_OPERATORS_URL"

// replaced says what to use instead of variables that the requirements name and
// this gate does not have.
var replaced = map[string]string{
	"THOUGHTGATE_APPROVAL_LIVENESS_CHECK": "use execution.start instead: contact checks that the agent is present, approval does not",
	"THOUGHTGATE_STREAM_CHUNK_SIZE_BYTES": "results are always streamed in pieces of 64 KiB",
}

// strangers returns the variables that look like the gate's own but are not,
// unless the file has asked for them.
func (env environment) strangers() []string {
	var names []string
	for name, value := range env.vars {
		known := name == operatorsURL || slices.ContainsFunc(Variables(), func(v Variable) bool { return v.Name == name })
		if strings.HasPrefix(name, "THOUGHTGATE_") && value != "" && !known && !env.used[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
