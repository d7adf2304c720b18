package relay

// WebFiles are the files of the page, by name.
func WebFiles() map[string][]byte {
	files := map[string][]byte{}
	for name, f := range webPage() {
		files[name] = f.data
	}
	return files
}
