package osb

// Routes returns the patterns of the handler without the prefixes, and Prefixes the prefixes.
func Routes() []string {
	var all []string
	for path, methods := range routes() {
		for method := range methods {
			all = append(all, method+" "+path)
		}
	}
	return all
}

// Prefixes returns the paths before /v2.
func Prefixes() []string { return prefixes() }
