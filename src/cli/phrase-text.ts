const WORDS_IN_LINE = 6;

/**
 * Returns the words of a phrase with numbers, six in a line, so that a person who copies them does not lose the
 * place.
 */
export function phraseText(phrase: string, configFile: string): string {
  const words = phrase.split(' ').map((word, i) => `${String(i + 1).padStart(2)} ${word}`);
  const width = Math.max(...words.map((word) => word.length)) + 2;
  const lines = words.flatMap((_, i) =>
    i % WORDS_IN_LINE === 0
      ? [
          words
            .slice(i, i + WORDS_IN_LINE)
            .map((word) => word.padEnd(width))
            .join('')
            .trimEnd(),
        ]
      : [],
  );
  return `
Recovery phrase, shown this once:

${lines.map((line) => `  ${line}`).join('\n')}

Write the 24 words down in their order, and keep them away from this machine. tillsync does not keep them: without them
nobody opens a backup that is made from now on (backup.recipient in ${configFile}). Earlier backups stay as they are.
`;
}
