import { html, nothing, type TemplateResult } from 'lit-html';
import type { Actions } from '../actions.ts';
import type { Dialog, PageState } from '../state.ts';
import { changeSubject, changeValues } from '../words/change-words.ts';
import { orderDetailView } from './order-detail-view.ts';

/** Whatever asks for an answer first. */
export function dialogView(state: PageState, actions: Actions): TemplateResult {
  return html`
    <dialog aria-labelledby="dialog-title" @close=${actions.closeDialog} @click=${(event: MouseEvent) => closeOutside(event, actions)}>
      ${state.dialog === null ? nothing : content(state.dialog, state, actions)}
    </dialog>
  `;
}

/** Opens or closes the browser's own dialog, which keeps the focus inside and gives it back. */
export function syncDialog({ dialog }: PageState): void {
  const element = document.querySelector('dialog');
  if (element === null || element.open === (dialog !== null)) return;
  if (dialog !== null) element.showModal();
  else {
    element.close();
    // What had the focus is gone with the change it was about.
    if (document.activeElement === document.body) document.getElementById('outbox')?.focus();
  }
}

function content(dialog: Dialog, state: PageState, actions: Actions): TemplateResult {
  switch (dialog.kind) {
    case 'key':
      return keyForm(dialog, state, actions);
    case 'drop':
      return dropForm(dialog, state, actions);
    case 'order':
      return orderDetailView(dialog, state, actions);
  }
}

function keyForm(
  { fault, isChecking }: Dialog & { kind: 'key' },
  { speech, hasKey }: PageState,
  actions: Actions,
): TemplateResult {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const { elements } = event.target as HTMLFormElement;
    const field = (name: string) => elements.namedItem(name) as HTMLInputElement;
    actions.useKey(field('key').value, field('remember').checked);
  };
  return html`
    <form class="sheet" @submit=${submit}>
      <h2 id="dialog-title">${speech.say('key.title')}</h2>
      <p>${speech.say('key.why')}</p>
      <label for="key">${speech.say('key.label')}</label>
      <input
        id="key"
        name="key"
        type="password"
        autocomplete="off"
        spellcheck="false"
        autofocus
        aria-invalid=${fault !== null}
        aria-describedby="key-fault"
      />
      <p class="fault" id="key-fault" role="alert">${fault === null ? '' : speech.say(fault)}</p>
      <label class="choice"><input type="checkbox" name="remember" /> ${speech.say('key.remember')}</label>
      <div class="buttons">
        <button type="submit" class="primary" ?disabled=${isChecking}>${speech.say('key.use')}</button>
        ${hasKey ? html`<button type="button" @click=${actions.forgetKey}>${speech.say('key.forget')}</button>` : nothing}
        <button type="button" @click=${actions.closeDialog}>${speech.say('cancel')}</button>
      </div>
    </form>
  `;
}

function dropForm(
  { change }: Dialog & { kind: 'drop' },
  { speech }: PageState,
  actions: Actions,
): TemplateResult {
  return html`
    <div class="sheet">
      <h2 id="dialog-title">${speech.say('drop.title')}</h2>
      <p><strong>${changeSubject(change, speech)}</strong> ${changeValues(change, speech)}</p>
      <p>${speech.say('drop.why')}</p>
      <div class="buttons">
        <button type="button" class="danger" @click=${() => actions.decide('drop', change)}>${speech.say('drop.yes')}</button>
        <button type="button" autofocus @click=${actions.closeDialog}>${speech.say('cancel')}</button>
      </div>
    </div>
  `;
}

function closeOutside(event: MouseEvent, actions: Actions): void {
  if (event.target === event.currentTarget) actions.closeDialog();
}
