// handoverstock INBOX_DB MIRROR_DB EXTERNAL_ID QTY BRANCH: one count, and what became of it.
// fpc handoverstock.pas
program handoverstock;
{$mode objfpc}{$H+}
uses SysUtils, db, sqldb, sqlite3conn, sqlite3dyn;

function Connect(const FileName: string; Flags: TSQLiteOpenFlags): TSQLite3Connection;
begin
  Result := TSQLite3Connection.Create(nil);
  Result.DatabaseName := FileName;
  Result.OpenFlags := Flags;
  Result.Transaction := TSQLTransaction.Create(Result);
  Result.Open;
  sqlite3_busy_timeout(Result.Handle, 5000);             // tillsync holds the file for milliseconds.
end;

procedure HandOver(const Reference: string);
var
  Inbox: TSQLite3Connection;
  Insert: TSQLQuery;
begin
  Inbox := Connect(ParamStr(1), [sofReadWrite]);
  try
    // What is committed survives a power cut. Before SQLite 3.12 write FULL: it takes EXTRA for less.
    sqlite3_exec(Inbox.Handle, 'PRAGMA synchronous = EXTRA', nil, nil, nil);
    Insert := TSQLQuery.Create(Inbox);
    Insert.DataBase := Inbox;
    Insert.SQL.Text := 'INSERT INTO stock_changes (external_id, qty, subsidiary_external_id, reference)' +
      ' VALUES (:id, :qty, :branch, :reference)';
    Insert.ParamByName('id').AsString := ParamStr(3);
    Insert.ParamByName('qty').AsString := ParamStr(4);
    Insert.ParamByName('branch').AsString := ParamStr(5);
    Insert.ParamByName('reference').AsString := Reference;
    Insert.ExecSQL;
    Inbox.Transaction.Commit;
  finally
    Inbox.Free;
  end;
end;

/// 'done', 'rejected: why', or '' when it waits.
function WhatBecameOf(const Reference, MirrorFile: string): string;
var
  Mirror: TSQLite3Connection;
  Look: TSQLQuery;
begin
  Result := '';
  Mirror := Connect(MirrorFile, [sofReadOnly]);
  try
    Look := TSQLQuery.Create(Mirror);
    Look.DataBase := Mirror;
    Look.SQL.Text := 'SELECT state, message FROM outbox WHERE reference = :reference';
    Look.ParamByName('reference').AsString := Reference;
    Look.Open;
    if Look.EOF then Exit;
    case Look.FieldByName('state').AsString of
      'done': Result := 'done';
      'rejected': Result := 'rejected: ' + Look.FieldByName('message').AsString;
    end;
  finally
    Mirror.Free;
  end;
end;

var
  Id: TGuid;
  Reference, Became: string;
  I: Integer;
begin
  SqliteDefaultLibrary := 'libsqlite3.so.0';
  CreateGUID(Id);
  Reference := 'count-' + GUIDToString(Id);              // Finds the answer; any text that is yours.
  try
    HandOver(Reference);
  except
    on Error: EDatabaseError do                          // "CHECK constraint failed: qty must be a number …"
    begin
      WriteLn(StdErr, 'Not handed over: ', Error.Message);
      Halt(1);
    end;
  end;
  for I := 1 to 60 do
  begin
    Became := WhatBecameOf(Reference, ParamStr(2));
    if Became <> '' then Break;
    Sleep(500);
  end;
  if Became = '' then Became := 'It is kept, and sent unless a person holds it or a later count took its place.';
  if Pos('rejected', Became) = 1 then
  begin
    WriteLn(StdErr, Became);
    Halt(1);
  end;
  WriteLn(Became);
end.
