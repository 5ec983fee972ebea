package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

func TestDefaultIsAnAction(t *testing.T) {
	cfg := valid(t, goodFile+"default: deny\n")
	if diff := cmp.Diff(policy.Rule{Action: "deny"}, cfg.Default); diff != "" {
		t.Errorf("default (-want +got):\n%s", diff)
	}
}

func TestOriginsOfRules(t *testing.T) {
	cfg := valid(t, goodFile+"rules:\n  - match: a\n    action: deny\n  - { match: b, action: deny }\ndefault: deny\n")
	for path, want := range map[string]string{
		"rules":             "f.yaml:4:3",
		"rules[0]":          "f.yaml:4:5",
		"rules[1]":          "f.yaml:6:5",
		"rules[1].action":   "f.yaml:6:25",
		"rules[1].workflow": "f.yaml:6:5",
		"default.action":    "f.yaml:7:10",
		"cedar":             "f.yaml:1:1",
	} {
		if got := cfg.Origins.Of(path).String(); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
}

func TestProblemsOfPolicy(t *testing.T) {
	const needed = "default: is required with rules or policies: it decides the calls that no rule matches"
	const late = "leaves no time to run the call: together with limits.call_timeout it exceeds tasks.max_ttl"
	const away = "with approval, calls may run when the agent is gone, but upstreams[0] needs the agent's credentials; set headers.Authorization or forward_authorization: false"
	tests := []struct {
		name, src string
		want      []string
	}{
		{"rules without default", "rules: [{match: a, action: deny}]\n", []string{"1:1: " + needed}},
		{"empty rules without default", "rules: []\n", []string{"1:1: " + needed}},
		{"policies without default", "cedar: {policies: [a]}\n", []string{"1:1: " + needed}},
		{"default with a reason", "default: {action: deny, reason: x}\n", []string{
			"3:10: default: must be forward, approve, deny or policy, not a group of settings; a workflow, reason or mode stands in a last rule with match: \"*\"",
		}},
		{"default of another word", "default: allow\n", []string{"3:10: default: must be forward, approve, deny or policy"}},
		{"empty rule", "default: deny\nrules: [{}]\n", []string{"4:9: rules[0].match: is required", "4:9: rules[0].action: is required"}},
		{"rule that is none", "default: deny\nrules: [deny]\n", []string{"4:9: rules[0]: must be a group of settings, not text"}},
		{"wrong values in a rule", "default: deny\nrules: [{match: 1, action: Deny, kind: tools, mode: on, workflow: A, reason: \"a\\nb\"}]\n", []string{
			"4:17: rules[0].match: must be text on one line, not a number",
			"4:28: rules[0].action: must be forward, approve, deny or policy",
			"4:40: rules[0].kind: must be tool, resource or prompt, or empty",
			"4:53: rules[0].mode: must be observe or enforce, or empty",
			"4:67: rules[0].workflow: must be at most 63 lower-case letters, digits and hyphens, or empty",
			"4:78: rules[0].reason: must be text on one line",
		}},
		{"rule without principals", "default: deny\nrules: [{match: a, action: forward, principals: []}]\n", []string{
			"4:49: rules[0].principals: an empty list matches no principal; remove it to match all",
		}},
		{"rule for a number", "default: deny\nrules: [{match: a, action: forward, principals: [1]}]\n", []string{
			"4:50: rules[0].principals[0]: must be a name or pattern, or group: followed by one, not a number",
		}},
		{"workflows that are none", "workflows: {A: {}, b: x}\n", []string{
			"3:13: workflows.A: must be at most 63 lower-case letters, digits and hyphens",
			"3:23: workflows.b: must be a group of settings, not text",
		}},
		{"workflow that cannot end", "workflows: {a: {approvers: [b, b], quorum: 2}}\n", []string{"3:44: workflows.a.quorum: exceeds the number of approvers"}},
		{"workflow without time", "workflows: {a: {timeout: 24h}}\n", []string{"3:26: workflows.a.timeout: " + late}},
		{"default workflow without time", "tasks: {max_ttl: 10m}\n", []string{"1:1: workflows.default.timeout: " + late}},
		{"wrong values in a workflow", "workflows: {a: {approvers: ['group:', ''], redact: [password, arguments., arguments.a..b, arguments.pass*], channels: [slack]}}\n", []string{
			"3:29: workflows.a.approvers[0]: must be a name, group:NAME, role:approver or role:admin",
			"3:39: workflows.a.approvers[1]: must be a name, group:NAME, role:approver or role:admin",
			"3:53: workflows.a.redact[0]: must be secrets, or a path such as arguments.password, arguments.*.password or result.token",
			"3:63: workflows.a.redact[1]: must be secrets, or a path such as arguments.password, arguments.*.password or result.token",
			"3:75: workflows.a.redact[2]: must be secrets, or a path such as arguments.password, arguments.*.password or result.token",
			"3:91: workflows.a.redact[3]: must be secrets, or a path such as arguments.password, arguments.*.password or result.token",
			`3:120: workflows.a.channels[0]: no channel "slack": there are inbox`,
		}},
		{"asking again", "workflows: {a: {remind: [0%, 50, 100%, 7.5%], quiet_hours: {from: '7', to: '25:00', timezone: Mars}, escalate: {after: never, workflow: B}}}\n", []string{
			"3:26: workflows.a.remind[0]: must be a share of the time from 1% to 99%, such as 50%",
			"3:30: workflows.a.remind[1]: must be a share of the time from 1% to 99%, such as 50%, not a number",
			"3:34: workflows.a.remind[2]: must be a share of the time from 1% to 99%, such as 50%",
			"3:40: workflows.a.remind[3]: must be a share of the time from 1% to 99%, such as 50%",
			"3:67: workflows.a.quiet_hours.from: must be a time of day such as 22:00",
			"3:76: workflows.a.quiet_hours.to: must be a time of day such as 22:00",
			"3:95: workflows.a.quiet_hours.timezone: must be the name of a time zone, such as Europe/Berlin",
			"3:120: workflows.a.escalate.after: must be a share of the time from 1% to 99%, such as 50%",
			"3:137: workflows.a.escalate.workflow: must be at most 63 lower-case letters, digits and hyphens",
		}},
		{"an e-mail channel", "channels: {c: {email: {server: mail, from: 'a@b\\r\\nBcc: x@y', to: ['ä@b', 'a b'], security: ssl}}}\n", []string{
			"3:32: channels.c.email.server: must be host:port, such as smtp.example.com:587",
			"3:44: channels.c.email.from: must be an address such as ops@example.com or Ops <ops@example.com>",
			"3:68: channels.c.email.to[0]: must be an address such as ops@example.com or Ops <ops@example.com>",
			"3:75: channels.c.email.to[1]: must be an address such as ops@example.com or Ops <ops@example.com>",
			"3:93: channels.c.email.security: must be starttls, tls or none",
		}},
		{"an unencrypted password", mailTo + "username: u, password: p, security: none}}}\n", []string{"3:98: channels.c.email.security: a password is not sent without encryption"}},
		{"username without password", mailTo + "username: u}}}\n", []string{"3:72: channels.c.email.username: needs a password"}},
		{"password without username", mailTo + "password: p}}}\n", []string{"3:72: channels.c.email.password: needs a username"}},
		{"two kinds", mailTo + "}, slack: {bot_token: b, app_token: a, channel: C1}}}\n", []string{"3:15: channels.c: needs one kind: webhook, slack, email, push, discord, telegram, teams or pagerduty"}},
		{"push without a contact", "channels: {c: {push: {contact: ops}}}\n", []string{"3:32: channels.c.push.contact: must be mailto: and an address, or a URL with https"}},
		{"push twice", "channels: {c: {push: {contact: 'mailto:a@b'}}, d: {push: {contact: 'https://c'}}}\n", []string{`3:58: channels.d.push: only one push channel is allowed, and "c" is one`}},
		{"one Slack channel twice", "channels: {c: {slack: {bot_token: b, app_token: a, channel: C1}}, d: {slack: {bot_token: b, app_token: a, channel: C1}}}\n", []string{
			`3:116: channels.d.slack.channel: is the one of "c": give "c" the people of both, and name it in the workflows of both`,
		}},
		{"two tokens of one app", "channels: {c: {slack: {bot_token: b, app_token: a, channel: C1}}, d: {slack: {bot_token: b, app_token: z, channel: C2}}}\n", []string{
			`3:104: channels.d.slack.app_token: must be that of "c", which is the same app: it has the same bot_token`,
		}},
		{"reminders without a channel", "workflows: {a: {remind: [50%]}}\n", []string{"3:25: workflows.a.remind: has no effect: the workflow has no channel besides the inbox"}},
		{"reminders in disorder", hook + "workflows: {a: {remind: [50%, 50%], channels: [hook]}}\n", []string{"4:25: workflows.a.remind: must rise from one entry to the next"}},
		{"many reminders", hook + "workflows: {a: {remind: [1%, 2%, 3%, 4%, 5%, 6%], channels: [hook]}}\n", []string{"4:25: workflows.a.remind: must not have more than 5 entries"}},
		{"quiet hours without reminders", "workflows: {a: {quiet_hours: {from: '22:00', to: '07:00'}}}\n", []string{
			"3:30: workflows.a.quiet_hours: has no effect: the workflow has neither remind nor escalate",
		}},
		{"empty quiet hours", hook + "workflows: {a: {remind: [50%], channels: [hook], quiet_hours: {from: '22:00', to: '22:00'}}}\n", []string{
			"4:83: workflows.a.quiet_hours.to: must differ from quiet_hours.from",
		}},
		{"half of quiet hours", hook + "workflows: {a: {remind: [50%], channels: [hook], quiet_hours: {from: '22:00'}}}\n", []string{
			"4:63: workflows.a.quiet_hours.to: is required",
		}},
		{"escalation to an unknown workflow", "workflows: {a: {escalate: {after: 50%, workflow: b}}}\n", []string{`3:50: workflows.a.escalate.workflow: no workflow "b"`}},
		{"escalation to itself", "workflows: {a: {escalate: {after: 50%, workflow: a}}}\n", []string{"3:50: workflows.a.escalate.workflow: is the workflow itself"}},
		{"escalation to all operators", "workflows: {a: {approvers: [operator], escalate: {after: 50%, workflow: b}}, b: {}}\n", []string{
			`3:73: workflows.a.escalate.workflow: the workflow "b" has no approvers, so any operator could decide: set its approvers`,
		}},
		{"half an escalation", "workflows: {a: {escalate: {workflow: b}}, b: {}}\n", []string{"3:27: workflows.a.escalate.after: is required"}},
		{"ttl", "tasks: {default_ttl: 25h}\n", []string{"3:22: tasks.default_ttl: must not exceed tasks.max_ttl"}},
		{"poll intervals", "tasks: {min_poll_interval: 31s}\n", []string{"3:28: tasks.min_poll_interval: must not exceed tasks.max_poll_interval"}},
		{"start without credentials", "execution: {start: approval}\n", []string{"3:20: execution.start: " + away}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := strings.Split("f.yaml:"+strings.Join(tt.want, "\nf.yaml:"), "\n")
			if diff := cmp.Diff(want, problems(t, goodFile+tt.src)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// At these upstreams, the gate can run calls while the agent is away.
func TestStartAtApprovalNeedsGateCredentials(t *testing.T) {
	for _, upstream := range []string{"headers: {authorization: Bearer x}", "forward_authorization: false"} {
		valid(t, "version: 1\nupstreams: [{url: http://a/, "+upstream+"}]\nexecution: {start: approval}\n")
	}
}

// mailTo begins the configuration of an e-mail channel.
const mailTo = "channels: {c: {email: {server: 'm:25', from: a@b, to: [c@d], "

// hook is the configuration of a webhook.
const hook = "channels: {hook: {webhook: {url: 'https://h', secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}}}\n"

func TestRemindersAndEscalation(t *testing.T) {
	valid(t, goodFile+hook+"workflows: {a: {approvers: [operator], channels: [hook], remind: [50%, 90%], escalate: {after: 75%, workflow: b}, "+
		"quiet_hours: {from: '22:00', to: '07:30', timezone: Europe/Vienna}}, b: {approvers: ['role:admin']}}\n")
}

func TestQuorumMayExceedNumberOfGroups(t *testing.T) {
	valid(t, goodFile+"workflows: {a: {approvers: [b, 'group:c'], quorum: 5}, d: {quorum: 5}}\n"+
		"operators: {url: 'https://g', oidc: {issuer: 'https://i/', client_id: c, roles: {admin: [a]}}}\n")
}

func TestApprovalTimeoutIsForTheDefaultWorkflow(t *testing.T) {
	const variable = "THOUGHTGATE_APPROVAL_TIMEOUT_SECS=60"
	load := func(text string) (config.Config, []config.Problem) {
		t.Helper()
		cfg, warnings, err := config.Load(config.Sources{Channels: kinds, File: write(t, "f.yaml", text), Environ: []string{variable}})
		if err != nil {
			t.Fatal(err)
		}
		return cfg, warnings
	}
	cfg, warnings := load(goodFile + "workflows: {a: {}, default: {timeout: 1h, redact: [arguments.a]}}\n")
	if w := cfg.Workflows[1]; w.Timeout != time.Minute || len(w.Redact) != 1 || cfg.Workflows[0].Timeout != 10*time.Minute || warnings != nil {
		t.Errorf("got %+v, %v", cfg.Workflows, warnings)
	}
	cfg, warnings = load(goodFile + "workflows: {a: {}}\n")
	want := []string{"THOUGHTGATE_APPROVAL_TIMEOUT_SECS: workflows.default.timeout: is ignored: no configured workflow has this name"}
	if diff := cmp.Diff(want, lines(warnings)); diff != "" || len(cfg.Workflows) != 1 {
		t.Errorf("got %+v, warnings (-want +got):\n%s", cfg.Workflows, diff)
	}
}

func TestBadTaskVariables(t *testing.T) {
	_, _, err := config.Load(config.Sources{Channels: kinds, File: write(t, "f.yaml", goodFile), Environ: []string{
		"THOUGHTGATE_TASK_FORCE_REQUIRED=a,,b",
		"THOUGHTGATE_TASK_MAX_TTL_MS=long",
		"THOUGHTGATE_TASK_MAX_TTL_SECS=60", // the variable above takes precedence
		"THOUGHTGATE_OPERATOR_TOKEN=hunter2 ",
		"THOUGHTGATE_APPROVAL_TIMEOUT_SECS=0",
	}})
	want := strings.Join([]string{
		"THOUGHTGATE_APPROVAL_TIMEOUT_SECS: workflows.default.timeout: must be a duration with a unit, such as 30s or 1m30s, of at least 1s",
		"THOUGHTGATE_OPERATOR_TOKEN: operators.token: must be printable ASCII characters without spaces, or empty",
		"THOUGHTGATE_TASK_FORCE_REQUIRED: tasks.force_required: must be the name of a tool",
		"THOUGHTGATE_TASK_MAX_TTL_MS: tasks.max_ttl: must be a duration with a unit, such as 30s or 1m30s, of at least 1s",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// tree creates files in a new directory and returns the directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPolicyFilesAreLoaded(t *testing.T) {
	dir := tree(t, map[string]string{
		"[gate]/f.yaml":             goodFile + "default: policy\ncedar: {policies: ['p/*', '../q/*/x?.cedar', p/b.cedar]}\n",
		"[gate]/p/b.cedar":          "b",
		"[gate]/p/a.cedar":          "a",
		"[gate]/p/folder/not.cedar": "",
		"q/1/x1.cedar":              "x1",
		"q/1/y.cedar":               "",
		"q/2/none":                  "",
	})
	gate := filepath.Join(dir, "[gate]")
	cfg, warnings, err := config.Load(config.Sources{Channels: kinds, File: filepath.Join(gate, "f.yaml")})
	if err != nil || warnings != nil {
		t.Fatal(warnings, err)
	}
	want := []policy.Source{
		{Name: filepath.Join(gate, "p/a.cedar"), Text: []byte("a")},
		{Name: filepath.Join(gate, "p/b.cedar"), Text: []byte("b")},
		{Name: filepath.Join(dir, "q/1/x1.cedar"), Text: []byte("x1")},
	}
	if diff := cmp.Diff(want, cfg.Cedar.Sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	for _, d := range []string{gate, filepath.Join(gate, "p"), filepath.Join(dir, "q"), filepath.Join(dir, "q/1"), filepath.Join(dir, "q/2")} {
		if !strings.Contains("\n"+strings.Join(cfg.Watch, "\n")+"\n", "\n"+d+"\n") {
			t.Errorf("%s is not among the watched directories: %q", d, cfg.Watch)
		}
	}
}

func TestWatchWithoutPolicies(t *testing.T) {
	file := write(t, "f.yaml", goodFile)
	cfg, _, err := config.Load(config.Sources{Channels: kinds, File: file})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Dir(file)}, cfg.Watch); diff != "" {
		t.Errorf("watch (-want +got):\n%s", diff)
	}
	cfg, _, err = config.Load(config.Sources{Channels: kinds, Environ: []string{"THOUGHTGATE_UPSTREAM=http://a/"}})
	if err != nil || cfg.Watch != nil {
		t.Errorf("got %q, %v", cfg.Watch, err)
	}
}

func TestProblemsOfPolicyFiles(t *testing.T) {
	dir := tree(t, map[string]string{
		"f.yaml":      goodFile + "default: policy\ncedar: {policies: [none.cedar, 'q/*.cedar', '*.large', '*.link', 'a/**/b', '['], timezone: Mars}\n",
		"q/x.yaml":    "",
		"a.large":     strings.Repeat("/", config.MaxFile+1),
		"keep/x.link": "",
	})
	if err := os.Symlink("nowhere", filepath.Join(dir, "a.link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	_, _, err := config.Load(config.Sources{Channels: kinds, File: "f.yaml"})
	const pattern = "must be a path, or a pattern with *, ? and [a-z] between slashes"
	want := strings.Join([]string{
		"f.yaml:4:20: cedar.policies[0]: matches no file",
		"f.yaml:4:32: cedar.policies[1]: matches no file",
		"f.yaml:4:45: cedar.policies[2]: a.large has more than 1048576 bytes",
		"f.yaml:4:56: cedar.policies[3]: a.link cannot be read",
		"f.yaml:4:66: cedar.policies[4]: " + pattern,
		"f.yaml:4:76: cedar.policies[5]: " + pattern,
		"f.yaml:4:92: cedar.timezone: must be the name of a time zone, such as Europe/Berlin",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// A workflow with fewer operators than its quorum is a warning.
func TestWarningOfTooFewOperators(t *testing.T) {
	hash := func(digit string) string { return "hash: 'sha256:" + strings.Repeat(digit, 64) + "'}" }
	tokens := "operators: {tokens: [{name: ann, role: approver, groups: [oncall], " + hash("1") + ", {name: Bob, role: admin, " + hash("2") +
		", {name: eve, role: viewer, groups: [oncall], " + hash("3") + ", {name: bot, role: rejecter, groups: [oncall], " + hash("4") + "]}\n"
	tests := []struct{ name, text, want string }{
		{"one token for two", "workflows: {w: {quorum: 2}}\n", "needs 2 approvals, but only 1 of"},
		{"an unknown approver", "workflows: {w: {approvers: [alice]}}\n", "needs 1 approvals, but only 0 of"},
		{"the one operator", "workflows: {w: {approvers: [operator]}}\n", ""},
		{"viewers and rejecters do not count", "workflows: {w: {quorum: 3}}\n" + tokens, "needs 3 approvals, but only 2 of"},
		{"two", "workflows: {w: {quorum: 2}}\n" + tokens, ""},
		{"by group and role", "workflows: {w: {approvers: ['group:oncall', 'role:admin'], quorum: 2}}\n" + tokens, ""},
		{"by group", "workflows: {w: {approvers: ['group:oncall', x], quorum: 2}}\n" + tokens, "needs 2 approvals, but only 1 of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, warnings, err := config.Load(config.Sources{Channels: kinds, File: write(t, "f.yaml", goodFile+tt.text)})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(lines(warnings), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("warnings are %q, want %q", got, tt.want)
			}
		})
	}
}

// The gates that share a desk have one inbox, so a single gate cannot configure it. A token in
// the environment may be meant for another gate, and is ignored.
func TestDeskSettings(t *testing.T) {
	const own = ": cannot be set with `store: 'desk:'`: the desk has its own inbox, address and token"
	const src = "store: 'desk:'\nstate_dir: /srv\noperators:\n  session: 1h\n  token: swordfish-and-chips-for-two\n  tokens: [{name: a, role: viewer, hash: 'sha256:" + "0000000000000000000000000000000000000000000000000000000000000000'}]\n"
	_, err := parse(t, goodFile+src)
	for _, want := range []string{"operators.token" + own, "operators.tokens" + own} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v; want %q", err, want)
		}
	}
	cfg := valid(t, goodFile+"store: 'desk:'\nstate_dir: /srv\noperators: {session: 1h}\n", "THOUGHTGATE_OPERATOR_TOKEN=swordfish-and-chips-for-two")
	if token := cfg.Operators.Token.Reveal(); token != "" {
		t.Errorf("the gate has the token %q", token)
	}
}
