package mcptask

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
)

// The wire types read and write themselves, so that they are the same with every JSON
// package. Each has a plain type beside it, which has its members and no methods.
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

// marshal returns v as JSON. Members that the package does not know come in the order of
// their names.
func marshal(v any) ([]byte, error) { return jsonv2.Marshal(v, jsonv2.Deterministic(true)) }

func (d DetailedTask) plain() plainDetailedTask {
	return plainDetailedTask{plainTask2026(d.Task2026), d.InputRequests, d.Result, d.Error}
}

func (d plainDetailedTask) detailed() DetailedTask {
	return DetailedTask{Task2026(d.plainTask2026), d.InputRequests, d.Result, d.Error}
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Task2025) MarshalJSON() ([]byte, error) { return marshal(plainTask2025(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Task2025) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainTask2025)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v CreateResult2025) MarshalJSON() ([]byte, error) {
	return marshal(plainCreateResult2025(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *CreateResult2025) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainCreateResult2025)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ListResult2025) MarshalJSON() ([]byte, error) {
	return marshal(plainListResult2025(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ListResult2025) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainListResult2025)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ToolExecution) MarshalJSON() ([]byte, error) { return marshal(plainToolExecution(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ToolExecution) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainToolExecution)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Augmentation) MarshalJSON() ([]byte, error) { return marshal(plainAugmentation(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Augmentation) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainAugmentation)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Task2026) MarshalJSON() ([]byte, error) { return marshal(plainTask2026(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Task2026) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainTask2026)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Ack2026) MarshalJSON() ([]byte, error) { return marshal(plainAck2026(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Ack2026) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainAck2026)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Subscription) MarshalJSON() ([]byte, error) { return marshal(plainSubscription(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Subscription) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainSubscription)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v TaskParams) MarshalJSON() ([]byte, error) { return marshal(plainTaskParams(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *TaskParams) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainTaskParams)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ListParams) MarshalJSON() ([]byte, error) { return marshal(plainListParams(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ListParams) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainListParams)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v UpdateParams) MarshalJSON() ([]byte, error) { return marshal(plainUpdateParams(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *UpdateParams) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainUpdateParams)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ServerCapability) MarshalJSON() ([]byte, error) {
	return marshal(plainServerCapability(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ServerCapability) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainServerCapability)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ServerRequests) MarshalJSON() ([]byte, error) { return marshal(plainServerRequests(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ServerRequests) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainServerRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ToolRequests) MarshalJSON() ([]byte, error) { return marshal(plainToolRequests(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ToolRequests) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainToolRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ClientCapability) MarshalJSON() ([]byte, error) {
	return marshal(plainClientCapability(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ClientCapability) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainClientCapability)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ClientRequests) MarshalJSON() ([]byte, error) { return marshal(plainClientRequests(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ClientRequests) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainClientRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v SamplingRequests) MarshalJSON() ([]byte, error) {
	return marshal(plainSamplingRequests(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *SamplingRequests) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainSamplingRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ElicitationRequests) MarshalJSON() ([]byte, error) {
	return marshal(plainElicitationRequests(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ElicitationRequests) UnmarshalJSON(text []byte) error {
	return jsonv2.Unmarshal(text, (*plainElicitationRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v TaskResult2025) MarshalJSON() ([]byte, error) {
	return marshal(plainTaskResult2025{plainTask2025(v.Task2025), v.Meta})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *TaskResult2025) UnmarshalJSON(text []byte) error {
	var p plainTaskResult2025
	err := jsonv2.Unmarshal(text, &p)
	*v = TaskResult2025{Task2025(p.plainTask2025), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (d DetailedTask) MarshalJSON() ([]byte, error) { return marshal(d.plain()) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (d *DetailedTask) UnmarshalJSON(text []byte) error {
	var p plainDetailedTask
	err := jsonv2.Unmarshal(text, &p)
	*d = p.detailed()
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v CreateResult2026) MarshalJSON() ([]byte, error) {
	return marshal(plainCreateResult2026{v.ResultType, plainTask2026(v.Task2026), v.Meta})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *CreateResult2026) UnmarshalJSON(text []byte) error {
	var p plainCreateResult2026
	err := jsonv2.Unmarshal(text, &p)
	*v = CreateResult2026{p.ResultType, Task2026(p.plainTask2026), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v GetResult2026) MarshalJSON() ([]byte, error) {
	return marshal(plainGetResult2026{v.ResultType, v.plain(), v.Meta})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *GetResult2026) UnmarshalJSON(text []byte) error {
	var p plainGetResult2026
	err := jsonv2.Unmarshal(text, &p)
	*v = GetResult2026{p.ResultType, p.detailed(), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v StatusParams2026) MarshalJSON() ([]byte, error) {
	return marshal(plainStatusParams2026{v.Meta, v.plain()})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *StatusParams2026) UnmarshalJSON(text []byte) error {
	var p plainStatusParams2026
	err := jsonv2.Unmarshal(text, &p)
	*v = StatusParams2026{p.Meta, p.detailed()}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (n Notification[P]) MarshalJSON() ([]byte, error) {
	type plain Notification[P]
	return marshal(plain(n))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (n *Notification[P]) UnmarshalJSON(text []byte) error {
	type plain Notification[P]
	return jsonv2.Unmarshal(text, (*plain)(n))
}
