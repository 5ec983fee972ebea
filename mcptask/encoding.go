package mcptask

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The wire types read and write themselves, so that they are the same with every JSON
// package. Each has a plain type beside it, which has its members and no methods.
type (
	plainLegacyTask          LegacyTask
	plainLegacyCreateResult  LegacyCreateResult
	plainLegacyListResult    LegacyListResult
	plainToolExecution       ToolExecution
	plainAugmentation        Augmentation
	plainModernTask          ModernTask
	plainModernAck           ModernAck
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

	plainLegacyTaskResult struct {
		plainLegacyTask

		Meta Object `json:"_meta,omitzero"`
	}
	plainDetailedTask struct {
		plainModernTask

		InputRequests Object         `json:"inputRequests,omitzero"`
		Result        jsontext.Value `json:"result,omitzero"`
		Error         jsontext.Value `json:"error,omitzero"`
	}
	plainModernCreateResult struct {
		ResultType ResultType `json:"resultType"`
		plainModernTask

		Meta Object `json:"_meta,omitzero"`
	}
	plainModernGetResult struct {
		ResultType ResultType `json:"resultType"`
		plainDetailedTask

		Meta Object `json:"_meta,omitzero"`
	}
	plainModernStatusParams struct {
		Meta Object `json:"_meta,omitzero"`
		plainDetailedTask
	}
)

func (d DetailedTask) plain() plainDetailedTask {
	return plainDetailedTask{plainModernTask(d.ModernTask), d.InputRequests, d.Result, d.Error}
}

func (d plainDetailedTask) detailed() DetailedTask {
	return DetailedTask{ModernTask(d.plainModernTask), d.InputRequests, d.Result, d.Error}
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v LegacyTask) MarshalJSON() ([]byte, error) { return json.Marshal(plainLegacyTask(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *LegacyTask) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainLegacyTask)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v LegacyCreateResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainLegacyCreateResult(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *LegacyCreateResult) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainLegacyCreateResult)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v LegacyListResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainLegacyListResult(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *LegacyListResult) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainLegacyListResult)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ToolExecution) MarshalJSON() ([]byte, error) { return json.Marshal(plainToolExecution(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ToolExecution) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainToolExecution)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Augmentation) MarshalJSON() ([]byte, error) { return json.Marshal(plainAugmentation(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Augmentation) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainAugmentation)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ModernTask) MarshalJSON() ([]byte, error) { return json.Marshal(plainModernTask(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ModernTask) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainModernTask)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ModernAck) MarshalJSON() ([]byte, error) { return json.Marshal(plainModernAck(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ModernAck) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainModernAck)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v Subscription) MarshalJSON() ([]byte, error) { return json.Marshal(plainSubscription(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *Subscription) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainSubscription)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v TaskParams) MarshalJSON() ([]byte, error) { return json.Marshal(plainTaskParams(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *TaskParams) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainTaskParams)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ListParams) MarshalJSON() ([]byte, error) { return json.Marshal(plainListParams(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ListParams) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainListParams)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v UpdateParams) MarshalJSON() ([]byte, error) { return json.Marshal(plainUpdateParams(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *UpdateParams) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainUpdateParams)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ServerCapability) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainServerCapability(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ServerCapability) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainServerCapability)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ServerRequests) MarshalJSON() ([]byte, error) { return json.Marshal(plainServerRequests(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ServerRequests) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainServerRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ToolRequests) MarshalJSON() ([]byte, error) { return json.Marshal(plainToolRequests(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ToolRequests) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainToolRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ClientCapability) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainClientCapability(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ClientCapability) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainClientCapability)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ClientRequests) MarshalJSON() ([]byte, error) { return json.Marshal(plainClientRequests(v)) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ClientRequests) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainClientRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v SamplingRequests) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainSamplingRequests(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *SamplingRequests) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainSamplingRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ElicitationRequests) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainElicitationRequests(v))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ElicitationRequests) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*plainElicitationRequests)(v))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v LegacyTaskResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainLegacyTaskResult{plainLegacyTask(v.LegacyTask), v.Meta})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *LegacyTaskResult) UnmarshalJSON(text []byte) error {
	var p plainLegacyTaskResult
	err := json.Unmarshal(text, &p)
	*v = LegacyTaskResult{LegacyTask(p.plainLegacyTask), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (d DetailedTask) MarshalJSON() ([]byte, error) { return json.Marshal(d.plain()) }

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (d *DetailedTask) UnmarshalJSON(text []byte) error {
	var p plainDetailedTask
	err := json.Unmarshal(text, &p)
	*d = p.detailed()
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ModernCreateResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainModernCreateResult{v.ResultType, plainModernTask(v.ModernTask), v.Meta})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ModernCreateResult) UnmarshalJSON(text []byte) error {
	var p plainModernCreateResult
	err := json.Unmarshal(text, &p)
	*v = ModernCreateResult{p.ResultType, ModernTask(p.plainModernTask), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ModernGetResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainModernGetResult{v.ResultType, v.plain(), v.Meta})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ModernGetResult) UnmarshalJSON(text []byte) error {
	var p plainModernGetResult
	err := json.Unmarshal(text, &p)
	*v = ModernGetResult{p.ResultType, p.detailed(), p.Meta}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (v ModernStatusParams) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainModernStatusParams{v.Meta, v.plain()})
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (v *ModernStatusParams) UnmarshalJSON(text []byte) error {
	var p plainModernStatusParams
	err := json.Unmarshal(text, &p)
	*v = ModernStatusParams{p.Meta, p.detailed()}
	return err
}

// MarshalJSON implements [encoding/json.Marshaler].
func (n Notification[P]) MarshalJSON() ([]byte, error) {
	type plain Notification[P]
	return json.Marshal(plain(n))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (n *Notification[P]) UnmarshalJSON(text []byte) error {
	type plain Notification[P]
	return json.Unmarshal(text, (*plain)(n))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) {
	if o == nil {
		return []byte("null"), nil
	}
	text := o.text()
	return text, text.Compact() // which checks the values
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (o *Object) UnmarshalJSON(text []byte) error {
	return o.UnmarshalJSONFrom(jsontext.NewDecoder(bytes.NewReader(text)))
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (m *Millis) UnmarshalJSON(text []byte) error {
	return m.UnmarshalJSONFrom(jsontext.NewDecoder(bytes.NewReader(text)))
}
