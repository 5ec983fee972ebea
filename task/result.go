package task

// inline reports whether r is an answer that is kept in its task.
func (r *Result) inline() bool {
	return r.Chunks == 0 && int64(len(r.Inline)) == r.Size && len(r.Inline) <= ChunkSize
}

// blob reports whether r is an answer that is kept as a blob.
func (r *Result) blob() bool { return r.Chunks > 0 && len(r.Inline) == 0 && r.Size > 0 }

// Sound reports whether r is either an inline answer or a blob.
func (r *Result) Sound() bool { return r.inline() || r.blob() }
