package mcptask_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// TYPE-05: the constructors write the form of the protocol, and DetectServer reads it.
func TestServerCapabilityRoundTrips(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range []struct {
		name       string
		capability schema.ServerCapability
		text       string
		support    schema.ServerSupport
	}{
		{
			"full", schema.FullServer(), `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`,
			schema.ServerSupport{Call: true, List: true, Cancel: true},
		},
		{"tools only", schema.ToolsOnly(), `{"requests":{"tools":{"call":{}}}}`, schema.ServerSupport{Call: true}},
		{
			"clients are not identified", schema.ServerSupport{Call: true, Cancel: true}.Capability(),
			`{"cancel":{},"requests":{"tools":{"call":{}}}}`,
			schema.ServerSupport{Call: true, Cancel: true},
		},
		{"nothing", schema.ServerCapability{}, `{}`, schema.ServerSupport{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := mustMarshal(t, tt.capability)
			if diff := cmp.Diff(tt.text, string(text)); diff != "" {
				t.Errorf("capability (-want +got):\n%s", diff)
			}
			whole := mustMarshal(t, schema.Object{{Name: "tasks", Value: text}})
			s.mustMatch(t, schemaLegacy, "ServerCapabilities", whole)
			if diff := cmp.Diff(tt.support, schema.DetectServer(whole)); diff != "" {
				t.Errorf("detected (-want +got):\n%s", diff)
			}
		})
	}
}

// TYPE-05 for clients.
func TestClientCapabilityRoundTrips(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range []struct {
		support schema.ClientSupport
		text    string
	}{
		{
			schema.ClientSupport{Sample: true, Elicit: true, List: true, Cancel: true},
			`{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}`,
		},
		{schema.ClientSupport{Elicit: true}, `{"requests":{"elicitation":{"create":{}}}}`},
		{schema.ClientSupport{Sample: true}, `{"requests":{"sampling":{"createMessage":{}}}}`},
		{schema.ClientSupport{}, `{}`},
	} {
		t.Run(tt.text, func(t *testing.T) {
			text := mustMarshal(t, tt.support.Capability())
			if diff := cmp.Diff(tt.text, string(text)); diff != "" {
				t.Errorf("capability (-want +got):\n%s", diff)
			}
			whole := mustMarshal(t, schema.Object{{Name: "tasks", Value: text}})
			s.mustMatch(t, schemaLegacy, "ClientCapabilities", whole)
			if diff := cmp.Diff(tt.support, schema.DetectClient(whole)); diff != "" {
				t.Errorf("detected (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(schema.ClientSupport{Sample: true, Elicit: true, List: true, Cancel: true}.Capability(),
		schema.FullClient()); diff != "" {
		t.Errorf("full client (-want +got):\n%s", diff)
	}
}

func TestDetectServerAcceptsKnownForms(t *testing.T) {
	all := schema.ServerSupport{Call: true, List: true, Cancel: true}
	call := schema.ServerSupport{Call: true}
	none := schema.ServerSupport{}
	tests := map[string]schema.ServerSupport{
		`{"tasks":true}`: all,
		`{"tasks":{"list":true,"cancel":true,"requests":true}}`:         all,
		`{"tasks":{"requests":{"tools":true}}}`:                         call,
		`{"tasks":{"requests":{"tools":{}}}}`:                           call,
		`{"tasks":{"requests":{"tools":{"call":true}}}}`:                call,
		`{"tasks":{"requests":{"tools/call":true}}}`:                    call,
		`{"tasks":{"requests":{"tools/call":{}}}}`:                      call,
		`{"experimental":{"tasks":{"requests":{"tools":{"call":{}}}}}}`: call,
		`{"experimental":{"tasks":true}}`:                               all,
		`{"tasks":null,"experimental":{"tasks":true}}`:                  all,
		`{"tasks":{"list":{}},"experimental":{"tasks":true}}`:           {List: true},
		`{"notifications":{"tasks":{"status":true}}}`:                   {Notify: true},
		`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`:           {Extension: true},
		`{"extensions":{"io.modelcontextprotocol/tasks":{"v":1}}}`:      {Extension: true},
		`{"extensions":{"io.modelcontextprotocol/tasks":false}}`:        none,
		`{"extensions":{"io.modelcontextprotocol/ui":{}}}`:              none,
		`{"tasks":{}}`:    none,
		`{"tasks":false}`: none,
		`{"tasks":{"list":null,"cancel":false,"requests":{}}}`:      none,
		`{"tasks":{"requests":{"tools":{"call":null}}}}`:            none,
		`{"tasks":{"requests":{"tools":{"call":false}}}}`:           none,
		`{"tasks":{"requests":{"tools":{"list":{}}}}}`:              none,
		`{"tasks":{"requests":{"prompts":{"get":{}}}}}`:             none,
		`{"Tasks":true,"TASKS":{"requests":{"tools":{"call":{}}}}}`: none,
		`{"tools":{"call":{}}}`:                                     none,
		`{}`:                                                        none, `null`: none, `true`: none, `[]`: none, ``: none, `{"tasks":`: none,
	}
	for text, want := range tests {
		if diff := cmp.Diff(want, schema.DetectServer([]byte(text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestDetectClientAcceptsKnownForms(t *testing.T) {
	for text, want := range map[string]schema.ClientSupport{
		`{"tasks":true}`: {Sample: true, Elicit: true, List: true, Cancel: true},
		`{"tasks":{"requests":{"elicitation":{}}}}`:                            {Elicit: true},
		`{"tasks":{"requests":{"sampling/createMessage":true}}}`:               {Sample: true},
		`{"experimental":{"tasks":{"cancel":{}}}}`:                             {Cancel: true},
		`{"tasks":{"requests":{"tools":{"call":{}}}}}`:                         {},
		`{"extensions":{"io.modelcontextprotocol/tasks":{}},"elicitation":{}}`: {Extension: true},
		`{"tasks":{"requests":{"elicitation":{"create":{}}}},"extensions":{}}`: {Elicit: true},
	} {
		if diff := cmp.Diff(want, schema.DetectClient([]byte(text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// The extension is declared as exactly {}, on each request.
func TestExtensionIsDeclaredPerRequest(t *testing.T) {
	s := loadSchemas(t)
	extensions := schema.Extensions()
	settings, _ := extensions.Get(mcpname.ExtensionTasks)
	s.mustMatch(t, schemaTasks, "TasksExtensionCapability", settings)
	whole := mustMarshal(t, schema.Object{{Name: "extensions", Value: mustMarshal(t, extensions)}})
	s.mustMatch(t, schemaModern, "ServerCapabilities", whole)
	s.mustMatch(t, schemaModern, "ClientCapabilities", whole)
	if diff := cmp.Diff(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, string(whole)); diff != "" {
		t.Errorf("extension (-want +got):\n%s", diff)
	}
	declaring := schema.Object{{Name: mcpname.MetaClientCapabilities, Value: whole}}
	legacyOnly := schema.Object{{Name: mcpname.MetaClientCapabilities, Value: json.RawMessage(`{"tasks":true}`)}}
	if !schema.RequestDeclaresTasks(declaring) || schema.RequestDeclaresTasks(legacyOnly) || schema.RequestDeclaresTasks(nil) {
		t.Error("the extension was not detected, or was detected without a declaration")
	}
}
