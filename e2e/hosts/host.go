package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A host is a program that runs agents, configured as its users do, with the gate's URL
// instead of the server's.
type host struct {
	name    string
	title   string
	pins    string // the directory of its package.json, below npm
	small   bool   // installed quickly, so that make test can run it
	modern  bool   // the server behind the gate speaks 2026-07-28
	prints  output // how it prints the results, without a model
	files   []file // docs/hosts.md shows the first one
	before  [][]string
	env     []string
	command []string
	screen  []string      // the command at a terminal
	typed   bool          // at a terminal, the user types the prompt
	escapes int           // how often Esc must be pressed to stop it; 0 means once
	limit   time.Duration // its time limit of a call, if it is shorter than the gate's
	variant bool          // docs/hosts.md describes it with another host
	least   time.Duration // the variant differs only if the decision takes longer
	talks   bool          // its script reads later messages from stdin
	person  bool          // it runs at a terminal in every scenario
	wrap    bool          // it starts the gate as a local server
	local   local         // how it starts the gate
	doc     hostDoc

	// patience changes the settings of a host so that a call may run for an hour.
	patience struct{ line, with string }
}

// A local describes how a host starts a local server: with a file instead of its first, or
// with a command instead of its last.
type local struct {
	text    string
	command []string
}

// An output is the form in which a host without a model prints results.
type output int

// The outputs of hosts.
const (
	noResult      output = iota // the host has a model
	resultPerLine               // each line is the result of a call
	oneResult                   // the whole output is one result
)

// A hostDoc has the texts about a host in docs/hosts.md.
type hostDoc struct {
	save   string // the path of the shown file
	script string // instead of save: the script that contains the setup
	waits  string // how it waits, and for how long
	know   string // other useful information
}

// allHosts returns every host and its variants.
func allHosts() []host {
	var all []host
	for _, h := range slices.Concat(libraries(), tools(), programs()) {
		all = append(append(all, h), h.variants()...)
	}
	return all
}

// variants returns the same host in other circumstances: with a server of 2026-07-28 if it
// supports that, and with a raised time limit. Claude Code makes different calls when a user
// is at the terminal.
func (h host) variants() []host {
	var all []host
	if bothEras[h.name] {
		modern := h
		modern.name, modern.title, modern.modern, modern.variant = h.name+"-modern", h.title+" (2026-07-28)", true, true
		all = append(all, modern)
		if h.name == "claude-code" {
			modern.name, modern.title, modern.person = h.name+"-person", h.title+" (2026-07-28, interactive)", true
			all = append(all, modern)
		}
	}
	if h.local.text != "" || h.local.command != nil {
		all = append(all, h.wrapped())
	}
	if h.patience.line != "" {
		patient := h
		patient.name, patient.title, patient.variant = h.name+"-patient", h.title+" (one hour)", true
		patient.limit, patient.least = 0, h.limit
		patient.files = slices.Clone(h.files)
		patient.files[0].text = strings.Replace(h.files[0].text, h.patience.line, h.patience.with, 1)
		all = append(all, patient)
	}
	return all
}

// wrapped returns the host with a local server behind thoughtgate wrap.
func (h host) wrapped() host {
	h.name, h.title, h.wrap, h.variant = h.name+"-wrap", h.title+" (wrap)", true, true
	if h.local.text != "" {
		h.files = slices.Clone(h.files)
		h.files[0].text = h.local.text
	} else {
		h.before = slices.Clone(h.before)
		h.before[len(h.before)-1] = h.local.command
	}
	return h
}

// bothEras are the hosts that try 2026-07-28 first.
var bothEras = map[string]bool{
	"ai-sdk": true, "openai-agents": true, "mastra": true, "inspector": true,
	"claude-code": true, "copilot-cli": true,
}

// hostsNamed returns the hosts with the given names, separated by spaces or commas, or all
// without names.
func hostsNamed(names string) ([]host, error) {
	wanted := split(names)
	if len(wanted) == 0 {
		return allHosts(), nil
	}
	var found []host
	for _, name := range wanted {
		i := slices.IndexFunc(allHosts(), func(h host) bool { return h.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no host %q; there are: %s", name, strings.Join(hostNames(), " "))
		}
		found = append(found, allHosts()[i])
	}
	return found, nil
}

func hostNames() []string {
	var names []string
	for _, h := range allHosts() {
		names = append(names, h.name)
	}
	return names
}

func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' })
}

// libraries are frameworks for agents. Each is run by a script of a few lines.
func libraries() []host {
	library := func(name, title string, doc hostDoc) host {
		doc.script = name + ".mjs"
		return host{
			name: name, title: title, pins: name, small: true, talks: true, doc: doc,
			env:     []string{"OPENAI_API_KEY=none", "OTEL_SDK_DISABLED=true", "MASTRA_TELEMETRY_DISABLED=1"},
			command: []string{"{{.Node}}", "{{.App}}/" + name + ".mjs"},
		}
	}
	return []host{
		library("langchain", "LangChain MCP adapters 1.1.4", hostDoc{
			waits: "Keeps the request open, without progress; 60 s for one call, and 12 calls (25 steps) in one turn.",
			know:  "The model reads errors with a request to fix its mistakes.",
		}),
		library("ai-sdk", "AI SDK MCP client 2.0.93", hostDoc{
			waits: "Keeps the request open; no limit seen in 150 s. With a server of 2026-07-28 it comes back by itself, up to 10 times.",
			know:  "The model reads the content as JSON.",
		}),
		library("openai-agents", "OpenAI Agents SDK 0.20.0", hostDoc{
			waits: "Keeps the request open for 60 s, 10 turns. With a server of 2026-07-28 it comes back by itself, up to 10 times.",
			know:  "The text of a JSON-RPC error is lost.",
		}),
		library("mastra", "Mastra MCP client 2.0.0", hostDoc{
			waits: "Keeps the request open for 60 s, 5 steps. With a server of 2026-07-28 it comes back by itself, up to 10 times.",
			know:  "The model reads the whole result as JSON.",
		}),
	}
}

// tools are programs without a model.
func tools() []host {
	return []host{
		{
			name: "mcp-remote", title: "mcp-remote 0.15.1 (stdio to HTTP)", pins: "mcp-remote", small: true, talks: true, prints: resultPerLine,
			files: []file{{path: "mcp.json", text: `{
  "mcpServers": {
    "gate": {
      "command": "mcp-remote",
      "args": ["{{.URL}}", "--allow-http"]
    }
  }
}
`}},
			command: []string{"{{.Node}}", "{{.App}}/mcp-remote.mjs"},
			doc: hostDoc{
				save:  "the settings of a host that knows stdio only, after `npm install -g mcp-remote`. `--allow-http` is for a gate without TLS",
				waits: "As the host behind it; a client of the TypeScript SDK allows 60 s.",
				know:  "It passes on requests, progress and cancellations. The client's name ends with `(via mcp-remote 0.15.1)`.",
			},
		},
		{
			name: "inspector", title: "MCP Inspector CLI 2.12.0", pins: "inspector", small: true, prints: oneResult,
			command: []string{
				"{{.Node}}", "{{.Modules}}/.bin/mcp-inspector", "--cli", "{{.URL}}", "--transport", "http",
				"--method", "tools/call", "--tool-name", "{{.Tool}}", "--tool-arg", "path=/payroll/bonuses.csv", "{{if .Modern}}--protocol-era=modern{{end}}",
			},
			doc: hostDoc{
				save:  "no file: the URL is an argument",
				waits: "Keeps the request open for 60 s. With `--protocol-era modern` it uses tasks and polls.",
				know:  "Makes one call and ends; for tests.",
			},
		},
	}
}
