package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"
)

//go:embed hosts.md
var introduction string

// example is the gate's URL in the documentation.
const example = "https://gate.example.com/mcp"

// writeDocs writes the page about hosts.
func (m *measured) writeDocs(file string) error {
	text, err := m.docs()
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // a file of the repository
}

// docs returns the page about hosts: an introduction, a section for each host, and
// a table of all of them.
func (m *measured) docs() (string, error) {
	var sections strings.Builder
	for _, h := range allHosts() {
		if h.variant {
			continue // it is in the section of its host
		}
		setup, err := h.setup()
		if err != nil {
			return "", fmt.Errorf("%s: %w", h.name, err)
		}
		wrapped, err := h.wrapSetup()
		if err != nil {
			return "", fmt.Errorf("%s: %w", h.name, err)
		}
		fmt.Fprintf(&sections, "### %s\n\n%s\n%s", h.title, setup, wrapped)
		fmt.Fprintf(&sections, "- **How it waits.** %s\n- **Its limits.** %s\n- **What its user sees.** %s\n- **What its model sees.** %s\n\n",
			h.doc.waits, h.doc.limits, h.doc.user, h.doc.model)
		sections.WriteString(m.details(h))
	}
	return strings.NewReplacer("{{scenarios}}", scenarioList(allScenarios), "{{overview}}", m.overview(), "{{wraps}}", m.wraps(), "{{strikes}}", scenarioList(wrapScenarios), "{{clients}}", m.clients(), "{{hosts}}", sections.String()).Replace(introduction), nil
}

// setup returns how a user points a host to the gate: the file or the lines with
// which the rig runs it.
func (h host) setup() (string, error) {
	if h.doc.script != "" {
		text, err := scripts.ReadFile("scripts/" + h.doc.script)
		if err != nil {
			return "", err
		}
		_, rest, _ := strings.Cut(string(text), "// setup:\n")
		lines, _, found := strings.Cut(rest, "// end of setup\n")
		if !found {
			return "", fmt.Errorf("%s has no setup", h.doc.script)
		}
		return "```js\n" + strings.ReplaceAll(lines, "process.env.GATE_URL", "'"+example+"'") + "```\n", nil
	}
	if len(h.files) == 0 {
		return h.commandLine()
	}
	f := h.files[0]
	texts, err := place{URL: example}.fill([]string{f.text})
	if err != nil {
		return "", err
	}
	kind := f.path[strings.LastIndex(f.path, ".")+1:]
	text := fmt.Sprintf("Save as %s:\n\n```%s\n%s```\n", h.doc.save, kind, texts[0])
	if h.patience.line != "" {
		_, setting, _ := strings.Cut(h.patience.with, "\n")
		text += fmt.Sprintf("\nWith `%s` in the same entry it lets a call run for an hour.\n", strings.TrimSpace(setting))
	}
	return text, nil
}

// exampleWrap is the command of a local server in the documentation.
var exampleWrap = []string{"thoughtgate", "wrap", "--name", "files", "--", "npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/project"}

// wrapSetup returns how a user puts the gate in front of a server that the host
// starts itself, if the rig has run that.
func (h host) wrapSetup() (string, error) {
	if h.local.text == "" && h.local.command == nil {
		return "", nil
	}
	p, err := place{}.with(exampleWrap)
	if err != nil {
		return "", err
	}
	const intro = "With a local server behind `thoughtgate wrap`:\n\n"
	if h.local.command != nil {
		args, err := p.fill(h.local.command)
		if err != nil {
			return "", err
		}
		args[0] = args[0][strings.LastIndex(args[0], "/")+1:]
		return intro + "```sh\n" + join(args) + "\n```\n\n", nil
	}
	texts, err := p.fill([]string{h.local.text})
	if err != nil {
		return "", err
	}
	kind := h.files[0].path[strings.LastIndex(h.files[0].path, ".")+1:]
	return fmt.Sprintf("%s```%s\n%s```\n\n", intro, kind, texts[0]), nil
}

// commandLine returns the command that tells a host of the gate.
func (h host) commandLine() (string, error) {
	args := h.command
	if n := len(h.before); n > 0 {
		args = h.before[n-1]
	}
	args, err := place{URL: example, Tool: toolName}.fill(args)
	if err != nil {
		return "", err
	}
	start := slices.IndexFunc(args, func(arg string) bool { return strings.Contains(arg, "bin/") && !strings.HasSuffix(arg, "/node") })
	command := args[max(0, start):]
	command[0] = command[0][strings.LastIndex(command[0], "/")+1:]
	return "```sh\n" + join(command) + "\n```\n", nil
}

// scenarioList returns a table of scenarios.
func scenarioList(names string) string {
	var list strings.Builder
	list.WriteString("| scenario | what happens |\n|---|---|\n")
	for _, name := range split(names) {
		if s, err := scenarioOf(name); err == nil {
			fmt.Fprintf(&list, "| `%s` | %s |\n", name, s.about)
		}
	}
	return list.String()
}

// overview returns the table of all hosts that reach the gate by HTTP.
func (m *measured) overview() string {
	return m.table(split(allScenarios), func(h host) bool { return !h.wrap })
}

// wraps returns the table of the hosts that start the gate.
func (m *measured) wraps() string {
	return m.table(split(wrapScenarios), func(h host) bool { return h.wrap })
}

// table returns a row for each of some hosts, with a column for each scenario.
func (m *measured) table(names []string, has func(host) bool) string {
	var table strings.Builder
	fmt.Fprintf(&table, "| host | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, h := range allHosts() {
		if !has(h) {
			continue
		}
		fmt.Fprintf(&table, "| %s |", h.title)
		for _, name := range names {
			fmt.Fprintf(&table, " %s |", m.brief(h, name))
		}
		table.WriteString("\n")
	}
	return table.String()
}

// clients returns the table of what hosts say of themselves.
func (m *measured) clients() string {
	var table strings.Builder
	table.WriteString("| host | `clientInfo` | `MCP-Protocol-Version` | progress token |\n|---|---|---|---|\n")
	for _, h := range allHosts() {
		if own := m.of(h); len(own) > 0 && !h.wrap {
			t, token := own[0].Traffic, "no"
			if t.Progress {
				token = "yes"
			}
			fmt.Fprintf(&table, "| %s | `%s` | %s | %s |\n", h.title, t.Client, cmp.Or(strings.Join(t.Versions, ", "), "none"), token)
		}
	}
	return table.String()
}

// brief returns calls/approvals/runs and the seconds to the answer of one cell.
func (m *measured) brief(h host, name string) string {
	if s, err := scenarioOf(name); err == nil && !s.suits(h) {
		return "–"
	}
	for _, r := range m.of(h) {
		if r.Scenario != name {
			continue
		}
		text := fmt.Sprintf("%d/%d/%d", r.Traffic.Calls, len(r.Approvals), r.Runs)
		if r.Answer != nil {
			text += " " + r.answer()
		}
		if len(r.faults()) > 0 {
			text += " *"
		}
		return text
	}
	return "not run"
}

// details returns what was seen of a host and its variants.
func (m *measured) details(h host) string {
	var table strings.Builder
	for _, v := range append([]host{h}, h.variants()...) {
		if len(m.of(v)) == 0 {
			continue
		}
		if v.variant {
			fmt.Fprintf(&table, "%s:\n\n", v.title)
		}
		table.WriteString("| scenario | calls | approvals | runs | answer after | the model saw last | remarks |\n|---|---|---|---|---|---|---|\n")
		for _, r := range m.of(v) {
			fmt.Fprintf(&table, "| `%s` | %d | %s | %d | %s | %s | %s |\n",
				r.Scenario, r.Traffic.Calls, r.approvals(), r.Runs, r.answer(), cellText(short(relevant(r.last()), 240)), cellText(r.remarks()))
		}
		table.WriteString("\n")
	}
	return table.String()
}

// approvals returns how many approvals were asked for, and their states.
func (r record) approvals() string {
	if len(r.Approvals) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", len(r.Approvals), strings.Join(r.Approvals, ", "))
}

// remarks returns what is not as it should be.
func (r record) remarks() string {
	var remarks []string
	for _, f := range r.faults() {
		if why := r.explanation(f); why != "" {
			f.text += " (" + why + ")"
		}
		remarks = append(remarks, f.text)
	}
	if len(r.Traffic.Cancels) > 0 {
		remarks = append(remarks, fmt.Sprintf("the host cancelled: %q", short(r.Traffic.Cancels[0], 80)))
	}
	return strings.Join(remarks, "; ")
}

// relevant returns what a result says, without what Claude Code adds to all of them.
func relevant(result string) string {
	if _, event, found := strings.Cut(result, "<task-notification>"); found {
		return event
	}
	text, _, _ := strings.Cut(result, "<system-reminder>")
	return text
}

// cellText makes a text harmless in a table.
func cellText(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(text)
}
