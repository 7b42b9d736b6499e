package stagemem

// Key returns the key of an entry in the bucket; an empty name means the marker of the scope.
func Key(s Scope, name string) (string, error) {
	if name == "" {
		prefix, err := s.prefix()
		return prefix + marker, err
	}
	prefix, token, err := names(s, name)
	return prefix + token, err
}

// Name returns the name that is encoded in a token of a key.
func Name(token string) (string, error) { return decode(token) }
