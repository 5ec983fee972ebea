package main

import (
	"strings"
	"time"
)

// programs are hosts that people install and use interactively.
func programs() []host {
	return []host{
		claudeCode(),
		patient(codex(), `url = "{{.URL}}"`, "tool_timeout_sec = 3600"),
		patient(geminiCLI(), `"httpUrl": "{{.URL}}"`, `"timeout": 3600000`),
		patient(qwenCode(), `"httpUrl": "{{.URL}}"`, `"timeout": 3600000`),
		opencode(), copilotCLI(), cline(), continueCLI(),
	}
}

// patient adds the setting that raises a host's limit, after a given line.
func patient(h host, line, setting string) host {
	h.patience.line, h.patience.with = line, line+"\n"+setting
	if strings.HasSuffix(h.files[0].path, ".json") {
		h.patience.with = line + ",\n      " + setting
	}
	return h
}

func claudeCode() host {
	program := "{{.Modules}}/@anthropic-ai/claude-code-linux-x64/claude"
	flags := []string{"--mcp-config", "{{.Home}}/mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__gate", "--model", "claude-sonnet-4-5"}
	return host{
		name: "claude-code", title: "Claude Code 2.1.325", pins: "claude-code",
		files: []file{
			{path: "mcp.json", text: `{
  "mcpServers": {
    "gate": {
      "type": "http",
      "url": "{{.URL}}"
    }
  }
}
`},
			{path: ".claude.json", text: `{"hasCompletedOnboarding":true,"theme":"dark","customApiKeyResponses":{"approved":["sk-none"],"rejected":[]},` +
				`"projects":{"{{.Work}}":{"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true}}}`},
		},
		env:     []string{"ANTHROPIC_BASE_URL={{.Model}}", "ANTHROPIC_API_KEY=sk-none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
		command: append([]string{program, "-p", "{{.Prompt}}", "--output-format", "stream-json", "--verbose"}, flags...),
		screen:  append([]string{program}, flags...),
		typed:   true,
		local: local{text: `{
  "mcpServers": {
    "gate": {
      "command": {{.Program}},
      "args": {{.Args}}
    }
  }
}
`},
		doc: hostDoc{
			save:  "`mcp.json`, and start `claude --mcp-config mcp.json`; or `.mcp.json` in the project",
			waits: "Keeps the request open with progress; no limit seen in 660 s. With a server of 2026-07-28 the interactive program makes a background task of the call and polls.",
			know:  "Shows the time and the latest progress. Esc cancels the call, but not a background task.",
		},
	}
}

func codex() host {
	program := []string{"{{.Node}}", "{{.Modules}}/@openai/codex/bin/codex.js"}
	return host{
		name: "codex", title: "Codex CLI 0.166.0", pins: "codex", limit: 5 * time.Minute,
		files: []file{
			{path: ".codex/config.toml", text: `[mcp_servers.gate]
url = "{{.URL}}"
`, more: `
[model_providers.scripted]
name = "scripted"
base_url = "{{.Model}}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"

[projects."{{.Work}}"]
trust_level = "trusted"
`},
			{path: ".codex/auth.json", text: `{"OPENAI_API_KEY":"none"}`},
		},
		env: []string{"MODEL_KEY=none"},
		command: append(program, "exec", "-c", "model=gpt-5", "-c", "model_provider=scripted",
			"--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "{{.Prompt}}"),
		screen: append(program, "-c", "model=gpt-5", "-c", "model_provider=scripted", "--dangerously-bypass-approvals-and-sandbox", "{{.Prompt}}"),
		local: local{text: `[mcp_servers.gate]
command = {{.Program}}
args = {{.Args}}
`},
		doc: hostDoc{
			save:  "`~/.codex/config.toml`",
			waits: "Keeps the request open for 300 s; progress does not extend it.",
			know:  "Shows the time, not the progress. Esc cancels the call.",
		},
	}
}

func geminiCLI() host {
	program := []string{"{{.Node}}", "{{.Modules}}/@google/gemini-cli/bundle/gemini.js", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"}
	return host{
		name: "gemini-cli", title: "Gemini CLI 0.61.0", pins: "gemini-cli", limit: 10 * time.Minute,
		files: []file{{path: ".gemini/settings.json", text: `{
  "mcpServers": {
    "gate": {
      "httpUrl": "{{.URL}}"
    }
  }
}
`, more: `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true,"enableAutoUpdate":false}}`}},
		env:     []string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL={{.Model}}"},
		command: append(program, "-p", "{{.Prompt}}"),
		screen:  append(program, "-i", "{{.Prompt}}"),
		local: local{text: `{
  "mcpServers": {
    "gate": {
      "command": {{.Program}},
      "args": {{.Args}}
    }
  }
}
`},
		doc: hostDoc{
			save:  "`~/.gemini/settings.json`",
			waits: "Keeps the request open with progress for 600 s.",
			know:  "Shows the latest progress. Esc does not reach the gate: a call that is approved later still runs.",
		},
	}
}

func qwenCode() host {
	program := []string{"{{.Node}}", "{{.Modules}}/@qwen-code/qwen-code/cli-entry.js", "--yolo"}
	return host{
		name: "qwen-code", title: "Qwen Code 0.24.4", pins: "qwen-code", limit: 10 * time.Minute,
		files: []file{{path: ".qwen/settings.json", text: `{
  "mcpServers": {
    "gate": {
      "httpUrl": "{{.URL}}"
    }
  }
}
`, more: `{"security":{"auth":{"selectedType":"openai"}},"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true}}`}},
		env:     []string{"OPENAI_API_KEY=none", "OPENAI_BASE_URL={{.Model}}/v1", "OPENAI_MODEL=scripted"},
		command: append(program, "-p", "{{.Prompt}}"),
		screen:  append(program, "-i", "{{.Prompt}}"),
		local: local{text: `{
  "mcpServers": {
    "gate": {
      "command": {{.Program}},
      "args": {{.Args}}
    }
  }
}
`},
		doc: hostDoc{
			save:  "`~/.qwen/settings.json`",
			waits: "Keeps the request open with progress for 600 s.",
			know:  "Shows the latest progress. Esc cancels the call.",
		},
	}
}

func opencode() host {
	program := "{{.Modules}}/opencode-linux-x64/bin/opencode"
	return host{
		name: "opencode", title: "opencode 1.18.33", pins: "opencode",
		files: []file{{path: ".config/opencode/opencode.json", text: `{
  "mcp": {
    "gate": {
      "type": "remote",
      "url": "{{.URL}}",
      "enabled": true
    }
  }
}
`, more: `{"autoupdate":false,"permission":"allow","share":"disabled","model":"scripted/m","small_model":"scripted/m",` +
			`"provider":{"scripted":{"npm":"@ai-sdk/openai-compatible","name":"scripted","options":{"baseURL":"{{.Model}}/v1","apiKey":"none"},"models":{"m":{"name":"m"}}}}}`}},
		env:     []string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"},
		command: []string{program, "run", "--print-logs", "{{.Prompt}}"},
		screen:  []string{program, "--prompt", "{{.Prompt}}"},
		escapes: 2,
		local: local{text: `{
  "mcp": {
    "gate": {
      "type": "local",
      "command": {{.Line}},
      "enabled": true
    }
  }
}
`},
		doc: hostDoc{
			save:  "`~/.config/opencode/opencode.json`",
			waits: "Keeps the request open with progress, which extends its limit; none seen in 660 s.",
			know:  "Shows no progress. Esc, pressed twice, cancels the call.",
		},
	}
}

func copilotCLI() host {
	program := []string{
		"{{.Modules}}/@github/copilot-linux-x64/copilot", "--allow-all-tools", "--allow-all-paths", "--no-auto-update",
	}
	return host{
		name: "copilot-cli", title: "GitHub Copilot CLI 1.0.102", pins: "copilot-cli",
		files: []file{
			{path: ".copilot/mcp-config.json", text: `{
  "mcpServers": {
    "gate": {
      "type": "http",
      "url": "{{.URL}}",
      "tools": ["*"]
    }
  }
}
`},
			{path: ".copilot/config.json", text: `{"trusted_folders":["{{.Work}}"]}`},
		},
		env: []string{
			"COPILOT_PROVIDER_BASE_URL={{.Model}}/v1", "COPILOT_PROVIDER_API_KEY=none", "COPILOT_MODEL=gpt-4.1", "COPILOT_OFFLINE=true",
		},
		command: append(program, "-p", "{{.Prompt}}"),
		screen:  append(program, "-i", "{{.Prompt}}"),
		escapes: 2,
		local: local{text: `{
  "mcpServers": {
    "gate": {
      "type": "local",
      "command": {{.Program}},
      "args": {{.Args}},
      "tools": ["*"]
    }
  }
}
`},
		doc: hostDoc{
			save:  "`~/.copilot/mcp-config.json`",
			waits: "Keeps the request open with progress; no limit seen in 660 s.",
			know:  "Shows the latest progress. Esc, pressed twice, cancels the call.",
		},
	}
}

func cline() host {
	program := "{{.Modules}}/@cline/cli-linux-x64/bin/cline"
	return host{
		name: "cline", title: "Cline CLI 3.0.65", pins: "cline",
		before: [][]string{
			{program, "auth", "-p", "openai", "-k", "none", "-m", "scripted", "-b", "{{.Model}}/v1"},
			{program, "mcp", "add", "gate", "{{.URL}}", "--transport", "http", "--yes"},
		},
		command: []string{program, "--json", "{{.Prompt}}"},
		screen:  []string{program, "-i", "{{.Prompt}}"},
		escapes: 2,
		local:   local{command: []string{program, "mcp", "add", "gate", "--yes", "--", theCommand}},
		doc: hostDoc{
			save:  "no file: a command adds the gate",
			waits: "Keeps the request open for 60 s, without progress; stops after 5 identical calls.",
			know:  "Esc cancels the call. It takes `--config` for itself: pass `-c` to `thoughtgate wrap`.",
		},
	}
}

func continueCLI() host {
	program := []string{"{{.Node}}", "{{.Modules}}/@continuedev/cli/dist/cn.js", "--config", "{{.Home}}/config.yaml", "--auto"}
	return host{
		name: "continue", title: "Continue CLI 1.5.47", pins: "continue",
		files: []file{{path: "config.yaml", text: `name: with the gate
version: 0.0.1
schema: v1
mcpServers:
  - name: gate
    type: streamable-http
    url: {{.URL}}
`, more: `models:
  - name: scripted
    provider: openai
    model: gpt-4o
    apiKey: none
    apiBase: {{.Model}}/v1
    roles: [chat]
`}},
		env:     []string{"CONTINUE_TELEMETRY_ENABLED=0"},
		command: append(program, "-p", "{{.Prompt}}"),
		screen:  append(program, "{{.Prompt}}"),
		doc: hostDoc{
			save:  "`~/.continue/config.yaml`, below your models",
			waits: "Keeps the request open for 60 s, without progress.",
			know:  "Esc does not reach the gate: a call that is approved later still runs.",
		},
	}
}
