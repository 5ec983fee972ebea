package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A host is a program that runs agents, set up as its users do it, with the
// gate's URL in place of the server's.
type host struct {
	name    string
	title   string
	pins    string // the directory of its package.json, below npm
	small   bool   // installed quickly, so that make test can run it
	modern  bool   // the server behind the gate speaks 2026-07-28
	prints  output // it has no model, and prints what a model would see
	files   []file // the first is what docs/hosts.md shows
	before  [][]string
	env     []string
	command []string
	screen  []string      // how people start it at a terminal
	typed   bool          // there its user types the prompt
	escapes int           // how often a user presses Esc to stop it; once if 0
	limit   time.Duration // how long it lets one call run, if it gives up before the gate answers
	variant bool          // it is described with another host
	least   time.Duration // it makes a difference only if the decision takes longer than this
	talks   bool          // its script takes what its user says later from stdin
	person  bool          // it runs at a terminal in every scenario
	wrap    bool          // it starts the gate as a local server
	local   local         // how it does that
	doc     hostDoc

	// patience changes its settings so that it lets a call run for an hour.
	patience struct{ line, with string }
}

// A local is how a host is told of a server that it starts itself: by a file in
// the place of its first, or by a command in the place of its last.
type local struct {
	text    string
	command []string
}

// An output says what is printed by a host that has no model.
type output int

// The outputs of hosts.
const (
	noResult      output = iota // the host has a model
	resultPerLine               // each line is the result of a call
	oneResult                   // everything is one result
)

// A hostDoc is what docs/hosts.md says of a host.
type hostDoc struct {
	save   string // where the shown file goes
	script string // instead: the script that contains the setup
	waits  string
	limits string
	user   string
	model  string
}

// allHosts returns every host, and after it its variants.
func allHosts() []host {
	var all []host
	for _, h := range slices.Concat(libraries(), tools(), programs()) {
		all = append(append(all, h), h.variants()...)
	}
	return all
}

// variants returns the same host in other circumstances: with a server of
// 2026-07-28, if it speaks that, and with a limit of its own that a user has
// raised. Claude Code with a person makes other calls than without.
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

// wrapped returns the host with a server that it starts itself, behind
// thoughtgate wrap.
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

// bothEras are the hosts that ask a server for 2026-07-28 first.
var bothEras = map[string]bool{
	"ai-sdk": true, "openai-agents": true, "mastra": true, "inspector": true,
	"claude-code": true, "copilot-cli": true,
}

// hostsNamed returns the hosts whose names are given, separated by spaces or
// commas, or all if there are none.
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

// libraries are frameworks with which agents are written. Each is run by a script
// of a few lines.
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
			waits:  "It keeps the request open and sends no progress token.",
			limits: "60 s for one call; a LangGraph agent stops after 25 steps, which are 12 calls.",
			user:   "What the program shows: the framework shows nothing while it waits.",
			model:  "The text of the result. A result with `isError` is wrapped into a sentence that asks the model to fix its mistakes.",
		}),
		library("ai-sdk", "AI SDK MCP client 2.0.93", hostDoc{
			waits:  "It keeps the request open; with a server of 2026-07-28 it comes back by itself for up to 10 rounds.",
			limits: "None seen in 150 s for one request.",
			user:   "What the program shows.",
			model:  "The content of the result as JSON.",
		}),
		library("openai-agents", "OpenAI Agents SDK 0.20.0", hostDoc{
			waits:  "It keeps the request open; with a server of 2026-07-28 it comes back by itself for up to 10 rounds.",
			limits: "60 s for one request, 10 turns of the model.",
			user:   "What the program shows.",
			model:  "The text of the result. A JSON-RPC error becomes a general sentence that says to try again; its text is lost.",
		}),
		library("mastra", "Mastra MCP client 2.0.0", hostDoc{
			waits:  "It keeps the request open; with a server of 2026-07-28 it comes back by itself for up to 10 rounds.",
			limits: "60 s for one request, 5 steps of the model.",
			user:   "What the program shows.",
			model:  "The whole result as JSON.",
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
				save:   "the settings of a host that knows stdio only, after `npm install -g mcp-remote`. `--allow-http` is for a gate without TLS",
				waits:  "As the host behind it does: it passes on requests, progress and cancellations.",
				limits: "Those of the host behind it. Here that is a client of the TypeScript SDK: 60 s.",
				user:   "What the host behind it shows.",
				model:  "What the host behind it shows its model. To the gate, the client's name ends with `(via mcp-remote 0.15.1)`.",
			},
		},
		{
			name: "inspector", title: "MCP Inspector CLI 2.12.0", pins: "inspector", small: true, prints: oneResult,
			command: []string{
				"{{.Node}}", "{{.Modules}}/.bin/mcp-inspector", "--cli", "{{.URL}}", "--transport", "http",
				"--method", "tools/call", "--tool-name", "{{.Tool}}", "--tool-arg", "path=/payroll/bonuses.csv", "{{if .Modern}}--protocol-era=modern{{end}}",
			},
			doc: hostDoc{
				save:   "no file: the URL is an argument",
				waits:  "It keeps the request open. With `--protocol-era modern` it uses tasks and polls.",
				limits: "60 s for one request.",
				user:   "Nothing until the result is there.",
				model:  "It has no model: it prints the result as JSON, or the error.",
			},
		},
	}
}
