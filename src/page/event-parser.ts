/** Takes the text of an event stream in pieces, however they are cut, and gives the data of each whole event. */
export class EventParser {
  #rest = '';

  push(text: string): string[] {
    const whole = (this.#rest + text).replaceAll('\r\n', '\n');
    const events = whole.split('\n\n');
    this.#rest = events.pop() ?? '';
    return events.map(dataOf).filter((data) => data !== '');
  }
}

function dataOf(event: string): string {
  return event
    .split('\n')
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice('data:'.length).replace(/^ /, ''))
    .join('\n');
}
