package task_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestPollIntervalFollowsAgeOfTask covers F-002.7 of GOV-001.
func TestPollIntervalFollowsAgeOfTask(t *testing.T) {
	const s = time.Second
	tests := []struct {
		polling         task.Polling
		remaining, want time.Duration
	}{
		{task.Polling{}, -s, 2 * s},
		{task.Polling{}, 0, 2 * s},
		{task.Polling{}, 60 * s, 2 * s},
		{task.Polling{}, 61*s - 1, 2 * s}, // rounded to whole seconds
		{task.Polling{}, 61 * s, 5 * s},
		{task.Polling{}, 300 * s, 5 * s},
		{task.Polling{}, 301 * s, 10 * s},
		{task.Polling{}, 900 * s, 10 * s},
		{task.Polling{}, 901 * s, 30 * s},
		{task.Polling{}, 24 * time.Hour, 30 * s},
		{task.Polling{Min: 4 * s, Max: 8 * s}, 0, 4 * s},
		{task.Polling{Min: 4 * s, Max: 8 * s}, 300 * s, 5 * s},
		{task.Polling{Min: 4 * s, Max: 8 * s}, 24 * time.Hour, 8 * s},
		{task.Polling{Min: 8 * s, Max: 4 * s}, 300 * s, 4 * s},
	}
	for _, tt := range tests {
		if got := tt.polling.Interval(tt.remaining); got != tt.want {
			t.Errorf("%+v with %v left: %v; want %v", tt.polling, tt.remaining, got, tt.want)
		}
	}
}

// TestTTLIsWithinRules covers F-002.4 of GOV-001, as section 5 of the design defines it.
func TestTTLIsWithinRules(t *testing.T) {
	const m = time.Minute
	rules := task.TTLRules{Approval: 15 * m, Execution: m}
	tests := []struct {
		name  string
		rules task.TTLRules
		asked time.Duration
		want  task.TTL
	}{
		{"none given", rules, 0, task.TTL{Value: 26 * m}},
		{"below the minimum", rules, m, task.TTL{Value: 26 * m, Raised: true}},
		{"the minimum", rules, 26 * m, task.TTL{Value: 26 * m}},
		{"more", rules, time.Hour, task.TTL{Value: time.Hour}},
		{"the maximum", rules, 24 * time.Hour, task.TTL{Value: 24 * time.Hour}},
		{"above the maximum", rules, 25 * time.Hour, task.TTL{Value: 24 * time.Hour, Clamped: true}},
		{"forever", rules, math.MaxInt64, task.TTL{Value: 24 * time.Hour, Clamped: true}},
		{"own settings", task.TTLRules{Approval: m, Execution: m, Retrieval: m, Max: 4 * m}, 5 * m, task.TTL{Value: 4 * m, Clamped: true}},
		{"a workflow that is too long", task.TTLRules{Approval: time.Hour, Max: m}, 0, task.TTL{Value: m, Clamped: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.rules.Resolve(tt.asked); got != tt.want {
				t.Errorf("%+v; want %+v", got, tt.want)
			}
		})
	}
}

func TestParseTTL(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "null": 0, "1": time.Millisecond, "60000": time.Minute, "60000.0": time.Minute, "6e4": time.Minute,
		"9223372036854": 9223372036854 * time.Millisecond, "9223372036855": math.MaxInt64, "1e300": math.MaxInt64, "1e999": math.MaxInt64,
	} {
		if got, err := task.ParseTTL(json.RawMessage(text)); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-0", "-1", "1.5", "1e-3", "-1e999", `"60000"`, "true", "{}", "[1]", "0x1p4", "Inf", "1_000", "NaN", "01"} {
		if got, err := task.ParseTTL(json.RawMessage(text)); !errors.Is(err, task.ErrInvalidTTL) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, task.ErrInvalidTTL)
		}
	}
}
