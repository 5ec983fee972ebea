package schema

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The message types have their own marshalers, so that every JSON package encodes them in the
// same way. Each has a plain type with the same members and without methods.
type (
	plainTask2025            Task2025
	plainCreateResult2025    CreateResult2025
	plainListResult2025      ListResult2025
	plainToolExecution       ToolExecution
	plainAugmentation        Augmentation
	plainTask2026            Task2026
	plainAck2026             Ack2026
	plainSubscription        Subscription
	plainTaskParams          TaskParams
	plainListParams          ListParams
	plainUpdateParams        UpdateParams
	plainServerCapability    ServerCapability
	plainServerRequests      ServerRequests
	plainToolRequests        ToolRequests
	plainClientCapability    ClientCapability
	plainClientRequests      ClientRequests
	plainSamplingRequests    SamplingRequests
	plainElicitationRequests ElicitationRequests

	plainTaskResult2025 struct {
		plainTask2025

		Meta Object `json:"_meta,omitzero"`
	}
	plainDetailedTask struct {
		plainTask2026

		InputRequests Object          `json:"inputRequests,omitzero"`
		Result        json.RawMessage `json:"result,omitzero"`
		Error         json.RawMessage `json:"error,omitzero"`
	}
	plainCreateResult2026 struct {
		ResultType ResultType `json:"resultType"`
		plainTask2026

		Meta Object `json:"_meta,omitzero"`
	}
	plainGetResult2026 struct {
		ResultType ResultType `json:"resultType"`
		plainDetailedTask

		Meta Object `json:"_meta,omitzero"`
	}
	plainStatusParams2026 struct {
		Meta Object `json:"_meta,omitzero"`
		plainDetailedTask
	}
)

// An open value is a JSON object that may have members that its type does not know.
type open[P any] struct {
	Known P              `json:",embed"`
	Extra jsontext.Value `json:",embed"`
}

// marshal encodes known as JSON, followed by the members in extra.
func marshal[P any](known P, extra Object) ([]byte, error) {
	o := open[P]{Known: known}
	if len(extra) > 0 {
		o.Extra = jsontext.Value(extra.Text())
	}
	return jsonv2.Marshal(o)
}

// unmarshal decodes JSON into known. It puts members that the type does not know into extra, in
// their order. Extra may be a field of known.
func unmarshal[P any](text []byte, known *P, extra *Object) error {
	var o open[P]
	err := jsonv2.Unmarshal(text, &o)
	*known = o.Known
	if err != nil || o.Extra == nil {
		return err
	}
	return extra.UnmarshalJSON(o.Extra)
}

func (d DetailedTask) plain() plainDetailedTask {
	return plainDetailedTask{plainTask2026(d.Task2026), d.InputRequests, d.Result, d.Error}
}

func (d plainDetailedTask) detailed() DetailedTask {
	return DetailedTask{Task2026(d.plainTask2026), d.InputRequests, d.Result, d.Error}
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Task2025) MarshalJSON() ([]byte, error) { return marshal(plainTask2025(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Task2025) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainTask2025)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v CreateResult2025) MarshalJSON() ([]byte, error) {
	return marshal(plainCreateResult2025(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *CreateResult2025) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainCreateResult2025)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ListResult2025) MarshalJSON() ([]byte, error) {
	return marshal(plainListResult2025(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ListResult2025) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainListResult2025)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ToolExecution) MarshalJSON() ([]byte, error) { return marshal(plainToolExecution(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ToolExecution) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainToolExecution)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Augmentation) MarshalJSON() ([]byte, error) { return marshal(plainAugmentation(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Augmentation) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainAugmentation)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Task2026) MarshalJSON() ([]byte, error) { return marshal(plainTask2026(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Task2026) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainTask2026)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Ack2026) MarshalJSON() ([]byte, error) { return marshal(plainAck2026(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Ack2026) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainAck2026)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Subscription) MarshalJSON() ([]byte, error) { return marshal(plainSubscription(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Subscription) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainSubscription)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v TaskParams) MarshalJSON() ([]byte, error) { return marshal(plainTaskParams(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *TaskParams) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainTaskParams)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ListParams) MarshalJSON() ([]byte, error) { return marshal(plainListParams(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ListParams) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainListParams)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v UpdateParams) MarshalJSON() ([]byte, error) { return marshal(plainUpdateParams(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *UpdateParams) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainUpdateParams)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ServerCapability) MarshalJSON() ([]byte, error) {
	return marshal(plainServerCapability(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ServerCapability) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainServerCapability)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ServerRequests) MarshalJSON() ([]byte, error) {
	return marshal(plainServerRequests(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ServerRequests) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainServerRequests)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ToolRequests) MarshalJSON() ([]byte, error) { return marshal(plainToolRequests(v), v.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ToolRequests) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainToolRequests)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ClientCapability) MarshalJSON() ([]byte, error) {
	return marshal(plainClientCapability(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ClientCapability) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainClientCapability)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ClientRequests) MarshalJSON() ([]byte, error) {
	return marshal(plainClientRequests(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ClientRequests) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainClientRequests)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v SamplingRequests) MarshalJSON() ([]byte, error) {
	return marshal(plainSamplingRequests(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *SamplingRequests) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainSamplingRequests)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ElicitationRequests) MarshalJSON() ([]byte, error) {
	return marshal(plainElicitationRequests(v), v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ElicitationRequests) UnmarshalJSON(text []byte) error {
	return unmarshal(text, (*plainElicitationRequests)(v), &v.Extra)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v TaskResult2025) MarshalJSON() ([]byte, error) {
	return marshal(plainTaskResult2025{plainTask2025(v.Task2025), v.Meta}, v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *TaskResult2025) UnmarshalJSON(text []byte) error {
	var p plainTaskResult2025
	err := unmarshal(text, &p, &p.Extra)
	*v = TaskResult2025{Task2025(p.plainTask2025), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (d DetailedTask) MarshalJSON() ([]byte, error) { return marshal(d.plain(), d.Extra) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (d *DetailedTask) UnmarshalJSON(text []byte) error {
	var p plainDetailedTask
	err := unmarshal(text, &p, &p.Extra)
	*d = p.detailed()
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v CreateResult2026) MarshalJSON() ([]byte, error) {
	return marshal(plainCreateResult2026{v.ResultType, plainTask2026(v.Task2026), v.Meta}, v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *CreateResult2026) UnmarshalJSON(text []byte) error {
	var p plainCreateResult2026
	err := unmarshal(text, &p, &p.Extra)
	*v = CreateResult2026{p.ResultType, Task2026(p.plainTask2026), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v GetResult2026) MarshalJSON() ([]byte, error) {
	return marshal(plainGetResult2026{v.ResultType, v.plain(), v.Meta}, v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *GetResult2026) UnmarshalJSON(text []byte) error {
	var p plainGetResult2026
	err := unmarshal(text, &p, &p.Extra)
	*v = GetResult2026{p.ResultType, p.detailed(), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v StatusParams2026) MarshalJSON() ([]byte, error) {
	return marshal(plainStatusParams2026{v.Meta, v.plain()}, v.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *StatusParams2026) UnmarshalJSON(text []byte) error {
	var p plainStatusParams2026
	err := unmarshal(text, &p, &p.Extra)
	*v = StatusParams2026{p.Meta, p.detailed()}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (n Notification[P]) MarshalJSON() ([]byte, error) {
	type plain Notification[P]
	return marshal(plain(n), n.Extra)
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (n *Notification[P]) UnmarshalJSON(text []byte) error {
	type plain Notification[P]
	return unmarshal(text, (*plain)(n), &n.Extra)
}
