package config

import (
	"slices"
	"strings"
)

// A Variable is an environment variable that overrides a setting.
type Variable struct {
	Name    string
	Setting string // path of the setting; empty for the name of the file
	read    func(value string) []string
}

// The settings that are not simply one value.
const (
	approvalTimeout = "workflows.default.timeout"
	forceRequired   = "tasks.force_required"
)

// Variables returns all environment variables of the gate. Of two for the same setting
// the later one takes precedence. An empty variable counts as not set.
func Variables() []Variable {
	return []Variable{
		{"THOUGHTGATE_CONFIG", "", asIs},
		{"THOUGHTGATE_LISTEN", "listen", asIs},
		{"THOUGHTGATE_OPERATORS_LISTEN", "operators.listen", asIs},
		{tokenVariable, "operators.token", asIs},
		{"THOUGHTGATE_UPSTREAM", "upstreams", byComma},
		{"THOUGHTGATE_STORE", "store", asIs},
		{"THOUGHTGATE_STORE_KEYS", "storage.keys", asIs},
		{"THOUGHTGATE_STATE_DIR", "state_dir", asIs},
		{"THOUGHTGATE_UPSTREAM_CONNECT_TIMEOUT_SECS", "upstreams[].connect_timeout", seconds},
		{"THOUGHTGATE_REQUEST_TIMEOUT_SECS", "limits.request_timeout", seconds},
		{"THOUGHTGATE_UPSTREAM_REQUEST_TIMEOUT_SECS", "limits.request_timeout", seconds},
		{"THOUGHTGATE_SYNC_FORWARD_TIMEOUT_SECS", "limits.call_timeout", seconds},
		{"THOUGHTGATE_UPSTREAM_CANCEL_TIMEOUT_SECS", "execution.cancel_timeout", seconds},
		{"THOUGHTGATE_LAZY_POLL_TIMEOUT_SECS", "execution.poll_timeout", seconds},
		{"THOUGHTGATE_TOOLS_FETCH_TIMEOUT_MS", "limits.tools_fetch_timeout", milliseconds},
		{"THOUGHTGATE_TOOLS_MAX_PAGES", "limits.tools_max_pages", asIs},
		{"THOUGHTGATE_KEEPALIVE_SECS", "limits.keepalive", seconds},
		{"THOUGHTGATE_MAX_CONCURRENT_REQUESTS", "limits.max_concurrent_requests", asIs},
		{"THOUGHTGATE_MAX_REQUEST_BODY_BYTES", "limits.max_request_body", asIs},
		{"THOUGHTGATE_APPROVAL_TIMEOUT_SECS", approvalTimeout, seconds},
		{"THOUGHTGATE_TASK_DEFAULT_TTL_SECS", "tasks.default_ttl", seconds},
		{"THOUGHTGATE_TASK_DEFAULT_TTL_MS", "tasks.default_ttl", milliseconds},
		{"THOUGHTGATE_TASK_MAX_TTL_SECS", "tasks.max_ttl", seconds},
		{"THOUGHTGATE_TASK_MAX_TTL_MS", "tasks.max_ttl", milliseconds},
		{"THOUGHTGATE_TASK_CLEANUP_INTERVAL_SECS", "tasks.cleanup_interval", seconds},
		{"THOUGHTGATE_TASK_MAX_PENDING_PER_PRINCIPAL", "tasks.max_pending_per_owner", asIs},
		{"THOUGHTGATE_TASK_MAX_PENDING_GLOBAL", "tasks.max_pending", asIs},
		{"THOUGHTGATE_TASK_MIN_POLL_INTERVAL_SECS", "tasks.min_poll_interval", seconds},
		{"THOUGHTGATE_TASK_MAX_POLL_INTERVAL_SECS", "tasks.max_poll_interval", seconds},
		{"THOUGHTGATE_TASK_FORCE_REQUIRED", forceRequired, everyComma},
		{"THOUGHTGATE_SSE_CLIENT_IDLE_TIMEOUT_SECS", "notifications.idle_timeout", seconds},
		{"THOUGHTGATE_SSE_FORWARDING_ENABLED", "notifications.forward", asIs},
		{"THOUGHTGATE_SSE_RECONNECT_DELAY_SECS", "notifications.reconnect_delay", seconds},
		{"THOUGHTGATE_SSE_RECONNECT_MAX_ATTEMPTS", "notifications.reconnect_attempts", asIs},
		{"THOUGHTGATE_LOG_LEVEL", "telemetry.log.level", asIs},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.traces.endpoint", tracesBelow},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "telemetry.traces.endpoint", asIs},
	}
}

func asIs(value string) []string { return []string{value} }

// byComma splits name=URL,name=URL. A URL without a name may have commas of its own.
func byComma(value string) []string {
	if name, _, ok := strings.Cut(value, "="); !ok || !IsName(name) {
		return []string{value}
	}
	return strings.Split(value, ",")
}

func everyComma(value string) []string { return strings.Split(value, ",") }

func seconds(value string) []string { return []string{withUnit(value, "s")} }

func milliseconds(value string) []string { return []string{withUnit(value, "ms")} }

// withUnit appends the unit to a bare number. A value with a unit, such as 30s, stays.
func withUnit(value, unit string) string {
	if only(value, digits) {
		return value + unit
	}
	return value
}

// tracesBelow appends the path of traces, as OpenTelemetry exporters do with the
// endpoint of all signals.
func tracesBelow(value string) []string {
	return []string{strings.TrimRight(value, "/") + "/v1/traces"}
}

// overrides returns the overrides by variables.
func (env environment) overrides() []Override {
	var all []Override
	for _, v := range Variables() {
		if value := env.vars[v.Name]; value != "" && v.Setting != "" {
			all = append(all, Override{Source: v.Name, Setting: v.Setting, Values: v.read(value)})
		}
	}
	return all
}

// operatorsURL is a variable of the commands for approvers. It may be set where the gate
// starts.
const operatorsURL = "THOUGHTGATE_OPERATORS_URL"

// replaced describes the replacements of variables that the gate does not have.
var replaced = map[string]string{
	"THOUGHTGATE_APPROVAL_LIVENESS_CHECK": "use execution.start instead: contact checks that the agent is present, approval does not",
	"THOUGHTGATE_STREAM_CHUNK_SIZE_BYTES": "results are always streamed in pieces of 64 KiB",
}

// unknown returns variables with the prefix THOUGHTGATE_ that are neither known nor used
// in the file.
func (env environment) unknown() []string {
	var names []string
	for name, value := range env.vars {
		known := name == operatorsURL || slices.ContainsFunc(Variables(), func(v Variable) bool { return v.Name == name })
		if strings.HasPrefix(name, "THOUGHTGATE_") && value != "" && !known && env.used[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
