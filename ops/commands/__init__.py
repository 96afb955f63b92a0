"""One file per noun; `ops.cli` loads a verb's file only when the verb is used."""
