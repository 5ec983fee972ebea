package main

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

//go:embed hosts.md
var introduction string

// example is the gate's URL in the documentation.
const example = "https://gate.example.com/mcp"

// writeDocs writes the page about hosts and the table of measurements.
func (m *measured) writeDocs() error {
	page, err := docs()
	if err != nil {
		return err
	}
	table, err := m.table()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(docsFile, []byte(page), 0o644), os.WriteFile(tableFile, table, 0o644))
}

// docs returns the page about hosts: an introduction, and a line for each host.
func docs() (string, error) {
	var lines strings.Builder
	for _, h := range allHosts() {
		if h.variant {
			continue // the line of its host describes it
		}
		setup, err := h.setup()
		if err != nil {
			return "", fmt.Errorf("%s: %w", h.name, err)
		}
		waits := h.doc.waits
		if h.patience.line != "" {
			_, setting, _ := strings.Cut(h.patience.with, "\n")
			waits += fmt.Sprintf(" `%s` allows an hour.", strings.TrimSpace(setting))
		}
		fmt.Fprintf(&lines, "| %s | %s | %s | %s |\n", h.title, setup, waits, h.doc.know)
	}
	return strings.Replace(introduction, "{{hosts}}\n", lines.String(), 1), nil
}

// setup returns how a user configures a host for the gate: the file or the command that the
// rig uses, too.
func (h host) setup() (string, error) {
	if h.doc.script != "" {
		return fmt.Sprintf("[%s](../e2e/hosts/scripts/%[1]s)", h.doc.script), nil
	}
	if len(h.files) == 0 {
		command, err := h.commandLine()
		return "`" + command + "`", err
	}
	texts, err := place{URL: example}.fill([]string{h.files[0].text})
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(h.files[0].path, ".json") {
		value := jsontext.Value(texts[0])
		err := value.Compact()
		return fmt.Sprintf("%s: `%s`", h.doc.save, value), err
	}
	lines := strings.Split(strings.TrimSpace(texts[0]), "\n")
	return fmt.Sprintf("%s: `%s`", h.doc.save, strings.Join(lines, "`<br>`")), nil
}

// commandLine returns the command that adds the gate to a host's configuration.
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
	return join(command), nil
}

// table returns the measurements of each host in each scenario.
func (m *measured) table() ([]byte, error) {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	rows := [][]string{{
		"host", "scenario", "day", "calls", "approvals", "runs", "answer after", "the model saw last", "remarks", "clientInfo", "protocol versions", "progress token",
	}}
	for _, h := range allHosts() {
		for _, r := range m.of(h) {
			rows = append(rows, []string{
				h.title, r.Scenario, r.Day, strconv.Itoa(r.Traffic.Calls), r.approvals(), strconv.Itoa(r.Runs), r.answer(), short(relevant(r.last()), 240), r.remarks(),
				r.Traffic.Client, strings.Join(r.Traffic.Versions, " "), strconv.FormatBool(r.Traffic.Progress),
			})
		}
	}
	err := w.WriteAll(rows)
	return text.Bytes(), err
}

// approvals returns the number and the states of the approvals.
func (r record) approvals() string {
	if len(r.Approvals) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", len(r.Approvals), strings.Join(r.Approvals, ", "))
}

// remarks returns the faults of a record.
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

// relevant returns the text of a result without the additions of Claude Code.
func relevant(result string) string {
	if _, event, found := strings.Cut(result, "<task-notification>"); found {
		return event
	}
	text, _, _ := strings.Cut(result, "<system-reminder>")
	return text
}
