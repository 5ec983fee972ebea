package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [ID]",
		Short: "Explain what the gate does with a call",
		Long: "Explain what a gate with this configuration would do with a call: which rule or policy decides, why,\n" +
			"what the approver would see, and what happens to each kind of MCP client. No call is sent.\n\n" +
			"ID is that of a recorded or held call, as calls list and approvals list print it. The gate at --url explains it with its\n" +
			"running policy. With -c, the policy is that of the file, and without --url, the record is the one in its store.\n" +
			"Lines that begin with otherwise say what would have to differ for another verdict.",
		Example: `  thoughtgate explain -c thoughtgate.yaml --tool delete_user --args '{"id": 1}' --principal alice --group ops
  thoughtgate explain tg_01jzx5r2kq9w`,
		Args: optionalArgument,
	}
	file := starterFlag(cmd)
	flags := cmd.Flags()
	gate := newGateFlags(flags, "an admin's token")
	flags.String("tool", "", "`name` of the tool")
	flags.String("resource", "", "`URI` of the resource")
	flags.String("prompt", "", "`name` of the prompt")
	flags.String("args", "", "arguments of the call, as a `JSON` object")
	flags.String("principal", "", "`id` of the caller (default: anonymous)")
	flags.StringArray("group", nil, "`name` of a group of the principal; may be repeated")
	flags.String("upstream", "", "`name` of the upstream (default: the only one)")
	flags.String("time", "", "`time` of the call, such as 2026-07-28T22:30:00+02:00 (default: now)")
	flags.Bool("read-only", false, "assume that the upstream marks the tool as read-only")
	flags.Bool("destructive", false, "assume that the upstream marks the tool as destructive")
	flags.Bool("idempotent", false, "assume that the upstream marks the tool as safe to repeat")
	flags.Bool("open-world", false, "assume that the upstream marks the tool as open-world")
	flags.String("host", "", "`name` of the agent host, as its clientInfo says, such as claude-code")
	completeFlag(cmd, "tool", environmentGate().complete(toolNames))
	completeFlag(cmd, "upstream", completeUpstream(file))
	progress := flags.Bool("progress", false, "assume that the client asks for progress notifications")
	asJSON := flags.Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return explainRecorded(cmd, gate, *file, args[0])
		}
		call, err := readCall(flags)
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		l, err := loadPolicy(cmd.ErrOrStderr(), config.Sources{File: orStarter(*file)})
		if err != nil {
			return err
		}
		if call.Upstream, err = pickUpstream(l.config.Upstreams, call.Upstream); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		e, err := l.explain(cmd.Context(), call, *progress)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), e)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), e.Text()+e.extra())
		return err
	}
	return cmd
}

// explainRecorded explains a recorded call.
func explainRecorded(cmd *cobra.Command, gate gateFlags, file, id string) error {
	ofCall := []string{"tool", "resource", "prompt", "args", "principal", "group", "upstream", "time", "read-only", "destructive", "idempotent", "open-world", "host", "progress"}
	if i := slices.IndexFunc(ofCall, cmd.Flags().Changed); i >= 0 {
		return &usageError{cmd.CommandPath(), fmt.Errorf("give the ID of a call or --%s, not both", ofCall[i])}
	}
	all, err := recordedExplanations(cmd, gate, file, id)
	if err != nil {
		return clientError(err)
	}
	if cmd.Flags().Changed("json") {
		return printJSON(cmd.OutOrStdout(), all)
	}
	for i := range all {
		text := all[i].Text()
		if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(cmd.OutOrStdout(), text); err != nil {
			return err
		}
	}
	return nil
}

// recordedExplanations explains a call in the record of a gate or a store. Without a file, the gate
// explains it.
func recordedExplanations(cmd *cobra.Command, gate gateFlags, file, id string) ([]replay.Explanation, error) {
	asks := *gate.url != "" || *gate.tokenFile != ""
	if file == "" {
		c, err := gate.client()
		if err != nil {
			return nil, err
		}
		return c.Explain(cmd.Context(), id)
	}
	l, err := loadPolicy(cmd.ErrOrStderr(), config.Sources{File: file})
	switch {
	case err != nil:
		return nil, err
	case l.settings.Policy == nil:
		return nil, replay.ErrNoPolicy
	case asks:
		c, err := gate.client()
		if err != nil {
			return nil, err
		}
		entries, err := callrecord.Lookup(cmd.Context(), c.Calls, id)
		all := make([]replay.Explanation, len(entries))
		for i := range entries {
			all[i] = replay.Explain(&entries[i], l.settings.Policy)
		}
		return all, err
	}
	store, err := auditFlags{config: &file}.openStore(cmd, "the record of calls")
	if err != nil {
		return nil, err
	}
	all, err := app.Explain(cmd.Context(), store, id, l.settings.Policy)
	return all, errors.Join(err, store.Close())
}

// readCall returns the call described by the flags.
func readCall(flags *pflag.FlagSet) (policy.Call, error) {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
	groups, _ := flags.GetStringArray("group")
	c := policy.Call{
		Upstream:    given["upstream"],
		Principal:   policy.Principal{ID: given["principal"], Groups: groups, Anonymous: given["principal"] == ""},
		Annotations: readAnnotations(given),
		Listed:      true,
		Accepted:    true, // explained as if the tool were pinned
		Session:     policy.Session{Client: given["host"]},
		Time:        time.Now(),
	}
	if c.Principal.Anonymous && len(groups) > 0 {
		return c, errors.New("--group needs --principal: anonymous callers have no groups")
	}
	if text, ok := given["time"]; ok {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return c, errors.New("--time must be like 2026-07-28T22:30:00+02:00")
		}
		c.Time = t
	}
	if text, ok := given["args"]; ok {
		c.Arguments = jsontext.Value(text)
		if !c.Arguments.IsValid() || c.Arguments.Kind() != '{' {
			return c, errors.New("--args must be a JSON object without duplicate names")
		}
	}
	return c, nameSubject(&c, given)
}

// nameSubject sets the method and name of the call.
func nameSubject(c *policy.Call, given map[string]string) error {
	methods := map[string]string{"tool": mcpname.ToolsCall, "resource": mcpname.ResourcesRead, "prompt": mcpname.PromptsGet}
	names := 0
	for flag, method := range methods {
		if given[flag] != "" {
			c.Method, c.Name, names = method, given[flag], names+1
		}
	}
	if names != 1 {
		return errors.New("pass exactly one of --tool, --resource and --prompt")
	}
	return nil
}

func readAnnotations(given map[string]string) policy.Annotations {
	hint := func(flag string) *bool {
		text, ok := given[flag]
		if !ok {
			return nil
		}
		return new(text == "true")
	}
	return policy.Annotations{
		ReadOnly:    hint("read-only"),
		Destructive: hint("destructive"),
		Idempotent:  hint("idempotent"),
		OpenWorld:   hint("open-world"),
	}
}

func pickUpstream(upstreams []config.Upstream, name string) (string, error) {
	names := make([]string, len(upstreams))
	for i, u := range upstreams {
		names[i] = u.Name
	}
	switch {
	case slices.Contains(names, name):
		return name, nil
	case name == "" && len(names) == 1:
		return names[0], nil
	default:
		return "", oneOf("upstream", name, names...)
	}
}

// An explanation extends the policy's explanation by the other settings.
type explanation struct {
	policy.Explanation `json:",inline"`

	Otherwise   []policy.Alternative `json:"otherwise,omitempty"`
	Listed      bool                 `json:"listed"`                // the agent's lists contain it
	TaskSupport policy.TaskSupport   `json:"taskSupport,omitempty"` // of a tool in the agent's list, if the upstream declares none
	Approval    *approvalTerms       `json:"approval,omitempty"`    // of a call that needs approval
	Clients     []app.ClientPlan     `json:"clients"`
}

type approvalTerms struct {
	Approvers []string `json:"approvers"` // empty means any operator
	Channels  []string `json:"channels"`
	Redacted  []string `json:"redacted"`
}

func (l loaded) explain(ctx context.Context, c policy.Call, progress bool) (explanation, error) {
	plans, err := app.Plans(ctx, l.config, l.settings, c, progress)
	if err != nil {
		return explanation{}, err
	}
	if l.settings.Policy == nil {
		return explanation{Listed: true, Explanation: unjudged(c), Clients: plans}, nil
	}
	e := explanation{Explanation: l.settings.Policy.Explain(c), Otherwise: l.settings.Policy.Otherwise(c), Clients: plans}
	kind, _ := policy.Governed(c.Method)
	prospect := l.settings.Policy.Prospect(policy.Named{Upstream: c.Upstream, Kind: kind, Name: c.Name, Accepted: true}, c.Principal)
	e.Listed = !l.settings.HideDenied || !prospect.Denied()
	if kind == policy.Tool {
		terms := policy.TaskTerms{Strict: l.settings.TasksOnly, Forced: slices.Contains(l.settings.ForceRequired, c.Name)}
		e.TaskSupport = terms.Published(prospect)
	}
	for _, w := range l.config.Workflows {
		if w.Name == e.Verdict.Workflow {
			e.Approval = &approvalTerms{Approvers: w.Approvers, Channels: w.Channels, Redacted: w.Redact}
		}
	}
	return e, nil
}

// unjudged explains a call under a configuration without a policy.
func unjudged(c policy.Call) policy.Explanation {
	return policy.Explanation{
		Method: c.Method, Name: c.Name, Upstream: c.Upstream, Principal: c.Principal.ID,
		Verdict:  policy.Verdict{Action: policy.Forward, Rule: policy.ByDefault, Reason: "no rules: every call is forwarded"},
		Approver: "no approval needed",
	}
}

// extra returns the lines after the policy's explanation.
func (e explanation) extra() string {
	var b strings.Builder
	line := func(label, text string) { fmt.Fprintf(&b, "%-10s %s\n", label, text) }
	b.WriteString(replay.OtherwiseText(e.Otherwise))
	if e.Approval != nil {
		people := "any operator"
		if len(e.Approval.Approvers) > 0 {
			people = strings.Join(e.Approval.Approvers, ", ")
		}
		line("approvers", people+"; notified by "+strings.Join(e.Approval.Channels, ", "))
		if len(e.Approval.Redacted) > 0 {
			line("redacted", strings.Join(e.Approval.Redacted, ", "))
		}
	}
	listed := "shown to the agent"
	if !e.Listed {
		listed = "hidden from the agent"
	}
	if e.Listed && e.TaskSupport != "" {
		listed += ", with tasks " + string(e.TaskSupport) + " unless the upstream requires more"
	}
	line("in lists", listed)
	b.WriteString("\nWhat happens to clients of\n")
	for _, c := range e.Clients {
		fmt.Fprintf(&b, "%-23s %s\n", c.Client, c.Plan)
	}
	return b.String()
}
