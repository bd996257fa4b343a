//! The parser: recursive descent over tokens. Nesting is bounded, and chains of operators are loops, so no text
//! overflows the stack.
//!
//! After a syntax error parsing ends, so one syntax error is reported. cel-go tries to go on and may report more.

use std::sync::Arc;

use super::lexer::{Kind, Token, tokens};
use super::literal;
use super::macros::{Expansion, MacroSet, expand};
use super::source::{Issues, Position, Source};
use super::tree::{Expr, ExprId, Literal, MapEntry, StructField, Tree};
use crate::limits::{MAX_NESTING, MAX_SOURCE_LENGTH, MAX_TREE_DEPTH};
use crate::types::RESERVED_WORDS;

/// Tokens that begin an operand, in the words of cel-go.
const OPERAND: &str =
    "'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";

/// Parses an expression and expands its macros. If errors were reported, the tree may be incomplete.
pub(crate) fn parse(source: &Source<'_>, macros: MacroSet, issues: &mut Issues) -> Tree {
    let mut tree = Tree::new();
    let length = source.text().chars().count();
    if length > MAX_SOURCE_LENGTH {
        issues.report(
            Position::NONE,
            format!("expression code point size exceeds limit: size: {length}, limit {MAX_SOURCE_LENGTH}"),
        );
        return tree;
    }
    let tokens = tokens(source, issues);
    let mut parser = Parser { source, tokens: &tokens, next: 0, tree: &mut tree, issues, macros, nesting: 0 };
    let root = match parser.start() {
        Ok(root) => Some(root.id),
        Err(failure) => {
            parser.report(failure);
            None
        }
    };
    if tree.is_full() {
        issues.report(Position::NONE, "expression is too complex");
    }
    if let Some(root) = root {
        tree.root = root;
        if issues.is_empty() && tree.depth() > MAX_TREE_DEPTH {
            issues.report(Position::NONE, "max recursion depth exceeded");
        }
    }
    tree
}

/// The reason why parsing ends.
enum Failure {
    Syntax { offset: usize, message: String },
    Nesting,
    Depth,
}

/// A node and the length of the longest path through operators and selections below it, which cel-go bounds.
#[derive(Clone, Copy)]
struct Parsed {
    id: ExprId,
    depth: usize,
}

struct Parser<'p, 's> {
    source: &'p Source<'s>,
    tokens: &'p [Token<'s>],
    next: usize,
    tree: &'p mut Tree,
    issues: &'p mut Issues,
    macros: MacroSet,
    nesting: usize,
}

type Result<T> = std::result::Result<T, Failure>;

impl<'s> Parser<'_, 's> {
    fn start(&mut self) -> Result<Parsed> {
        let root = self.expression()?;
        let token = self.peek();
        if token.kind == Kind::End {
            return Ok(root);
        }
        let is_last = self.tokens.get(self.next + 1).is_none_or(|next| next.kind == Kind::End);
        let problem = if is_last { "extraneous" } else { "mismatched" };
        Err(syntax(token, format!("{problem} input '{}' expecting <EOF>", token.text)))
    }

    fn report(&mut self, failure: Failure) {
        match failure {
            Failure::Syntax { offset, message } => {
                let position = self.source.position(offset);
                self.issues.report(position, format!("Syntax error: {message}"));
            }
            Failure::Nesting => self
                .issues
                .report(Position::NONE, format!("expression recursion limit exceeded: {MAX_NESTING}")),
            Failure::Depth => self.issues.report(Position::NONE, "max recursion depth exceeded"),
        }
    }

    fn peek(&self) -> Token<'s> {
        self.tokens.get(self.next).or(self.tokens.last()).copied().unwrap_or(Token {
            kind: Kind::End,
            text: "<EOF>",
            offset: 0,
        })
    }

    fn is_next(&self, symbol: &str) -> bool {
        let token = self.peek();
        token.kind == Kind::Symbol && token.text == symbol
    }

    fn take(&mut self, symbol: &str) -> Option<Token<'s>> {
        self.is_next(symbol).then(|| self.advance())
    }

    fn advance(&mut self) -> Token<'s> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn expect(&mut self, symbol: &str) -> Result<Token<'s>> {
        if let Some(token) = self.take(symbol) {
            return Ok(token);
        }
        let token = self.peek();
        let message = match token.kind {
            Kind::End if symbol != ":" => format!("missing '{symbol}' at '<EOF>'"),
            _ => format!("mismatched input '{}' expecting '{symbol}'", token.text),
        };
        Err(syntax(token, message))
    }

    fn add(&mut self, expr: Expr, offset: usize, depth: usize) -> Result<Parsed> {
        if depth > MAX_NESTING {
            return Err(Failure::Depth);
        }
        Ok(Parsed { id: self.tree.add(expr, offset), depth })
    }

    /// Reports an error that does not end parsing.
    fn fault(&mut self, offset: usize, message: impl Into<String>) -> Parsed {
        let position = self.source.position(offset);
        self.issues.report(position, message);
        Parsed { id: self.tree.add(Expr::Broken, offset), depth: 0 }
    }

    fn expression(&mut self) -> Result<Parsed> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(Failure::Nesting);
        }
        let result = self.ternary();
        self.nesting -= 1;
        result
    }

    fn ternary(&mut self) -> Result<Parsed> {
        let condition = self.logical("||")?;
        let Some(operator) = self.take("?") else {
            return Ok(condition);
        };
        let if_true = self.logical("||")?;
        self.expect(":")?;
        let if_false = self.expression()?;
        self.call(operator.offset, "_?_:_", None, &[condition, if_true, if_false], true)
    }

    /// A chain of `||` or `&&`, as a balanced tree.
    fn logical(&mut self, symbol: &str) -> Result<Parsed> {
        let operand = |this: &mut Self| if symbol == "||" { this.logical("&&") } else { this.relation() };
        let mut terms = vec![operand(self)?];
        let mut offsets = Vec::new();
        while let Some(operator) = self.take(symbol) {
            offsets.push(operator.offset);
            terms.push(operand(self)?);
        }
        let function: Arc<str> = if symbol == "||" { "_||_".into() } else { "_&&_".into() };
        self.balanced(&function, &terms, &offsets)
    }

    fn balanced(&mut self, function: &Arc<str>, terms: &[Parsed], offsets: &[usize]) -> Result<Parsed> {
        let (Some(first), false) = (terms.first(), offsets.is_empty()) else {
            return terms.first().copied().ok_or(Failure::Depth);
        };
        if terms.len() == 1 {
            return Ok(*first);
        }
        let middle = offsets.len() / 2;
        let left = self.balanced(function, &terms[..=middle], &offsets[..middle])?;
        let right = self.balanced(function, &terms[middle + 1..], &offsets[middle + 1..])?;
        let depth = left.depth.max(right.depth);
        let call =
            Expr::Call { function: Arc::clone(function), target: None, arguments: vec![left.id, right.id] };
        self.add(call, offsets[middle], depth)
    }

    fn relation(&mut self) -> Result<Parsed> {
        const OPERATORS: [(&str, &str); 7] = [
            ("<", "_<_"),
            ("<=", "_<=_"),
            (">", "_>_"),
            (">=", "_>=_"),
            ("==", "_==_"),
            ("!=", "_!=_"),
            ("in", "@in"),
        ];
        self.binary(&OPERATORS, Self::sum)
    }

    fn sum(&mut self) -> Result<Parsed> {
        self.binary(&[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Result<Parsed> {
        self.binary(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    /// A chain of operators of one precedence, from the left.
    fn binary(
        &mut self,
        operators: &[(&str, &str)],
        operand: impl Fn(&mut Self) -> Result<Parsed>,
    ) -> Result<Parsed> {
        let mut left = operand(self)?;
        loop {
            let token = self.peek();
            let found =
                operators.iter().find(|(symbol, _)| token.kind == Kind::Symbol && *symbol == token.text);
            let Some((_, function)) = found else {
                return Ok(left);
            };
            self.advance();
            let right = operand(self)?;
            left = self.call(token.offset, function, None, &[left, right], true)?;
        }
    }

    /// An operand with its signs. An even number of signs has no effect.
    fn unary(&mut self) -> Result<Parsed> {
        let token = self.peek();
        let function = match (token.kind, token.text) {
            (Kind::Symbol, "!") => "!_",
            (Kind::Symbol, "-") => "-_",
            _ => return self.member(),
        };
        if function == "-_" && self.is_number_behind() {
            return self.member();
        }
        let mut count = 0_usize;
        while self.take(token.text).is_some() {
            count += 1;
        }
        let operand = self.member()?;
        if count.is_multiple_of(2) {
            return Ok(operand);
        }
        self.call(token.offset, function, None, &[operand], false)
    }

    fn is_number_behind(&self) -> bool {
        self.tokens.get(self.next + 1).is_some_and(|token| matches!(token.kind, Kind::Int | Kind::Float))
    }

    /// An operand with selections, calls and indexes behind it.
    fn member(&mut self) -> Result<Parsed> {
        let mut operand = self.primary()?;
        loop {
            if let Some(point) = self.take(".") {
                operand = self.select(operand, point)?;
            } else if let Some(bracket) = self.take("[") {
                let is_optional = self.take("?").is_some();
                let index = self.expression()?;
                self.expect("]")?;
                let function = if is_optional { "_[?_]" } else { "_[_]" };
                operand = self.call(bracket.offset, function, None, &[operand, index], true)?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn select(&mut self, operand: Parsed, point: Token<'s>) -> Result<Parsed> {
        let is_optional = self.take("?").is_some();
        let token = self.peek();
        let field = match token.kind {
            Kind::Identifier => token.text,
            Kind::Quoted => token.text.trim_matches('`'),
            _ => {
                let text = if token.kind == Kind::End { "" } else { token.text };
                return Err(syntax(token, format!("no viable alternative at input '.{text}'")));
            }
        };
        self.advance();
        if is_optional {
            let field = self.add(Expr::Literal(Literal::String(field.into())), token.offset, 0)?;
            return self.call(point.offset, "_?._", None, &[operand, field], true);
        }
        if token.kind == Kind::Identifier
            && let Some(open) = self.take("(")
        {
            let arguments = self.arguments()?;
            return self.call(open.offset, field, Some(operand), &arguments, true);
        }
        let select = Expr::Select { operand: operand.id, field: field.into(), is_test: false };
        self.add(select, point.offset, operand.depth + 1)
    }

    /// Arguments up to the closing bracket.
    fn arguments(&mut self) -> Result<Vec<Parsed>> {
        if self.take(")").is_some() {
            return Ok(Vec::new());
        }
        if self.peek().kind == Kind::End {
            let token = self.peek();
            return Err(syntax(
                token,
                format!("mismatched input '<EOF>' expecting {{'[', '{{', '(', ')', {OPERAND}}}"),
            ));
        }
        let mut arguments = vec![self.expression()?];
        while self.take(",").is_some() {
            arguments.push(self.expression()?);
        }
        self.expect(")")?;
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Parsed> {
        let token = self.peek();
        match (token.kind, token.text) {
            (Kind::Identifier, _) => self.name(false),
            (Kind::Symbol, ".")
                if self.tokens.get(self.next + 1).is_some_and(|t| t.kind == Kind::Identifier) =>
            {
                self.advance();
                self.name(true)
            }
            (Kind::Symbol, ".") => {
                self.advance();
                let next = self.peek();
                let text = if next.kind == Kind::End { "" } else { next.text };
                Err(syntax(next, format!("no viable alternative at input '.{text}'")))
            }
            (Kind::Symbol, "(") => {
                self.advance();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            (Kind::Symbol, "[") => self.list(),
            (Kind::Symbol, "{") => self.map(),
            _ => self.literal(),
        }
    }

    /// An identifier, a call of a function, or an object with a type name.
    fn name(&mut self, is_absolute: bool) -> Result<Parsed> {
        let token = self.advance();
        let prefix = if is_absolute { "." } else { "" };
        if let Some(length) = self.type_name_length() {
            let mut name = format!("{prefix}{}", token.text);
            for _ in 0..length {
                name.push_str(self.advance().text);
            }
            return self.structure(&name);
        }
        let is_reserved = RESERVED_WORDS.contains(&token.text);
        if let Some(open) = self.take("(") {
            let arguments = self.arguments()?;
            if is_reserved {
                return Ok(self.fault(token.offset, format!("reserved identifier: {}", token.text)));
            }
            return self.call(open.offset, &format!("{prefix}{}", token.text), None, &arguments, false);
        }
        if is_reserved {
            return Ok(self.fault(token.offset, format!("reserved identifier: {}", token.text)));
        }
        self.add(Expr::Ident(format!("{prefix}{}", token.text).into()), token.offset, 0)
    }

    /// The number of tokens between a name and `{`, if the text is the type of an object.
    fn type_name_length(&self) -> Option<usize> {
        let rest = self.tokens.get(self.next..)?;
        let mut length = 0;
        loop {
            let token = rest.get(length)?;
            if token.kind == Kind::Symbol && token.text == "{" {
                return Some(length);
            }
            let is_part = token.kind == Kind::Symbol
                && token.text == "."
                && rest.get(length + 1).is_some_and(|next| next.kind == Kind::Identifier);
            if !is_part {
                return None;
            }
            length += 2;
        }
    }

    fn structure(&mut self, name: &str) -> Result<Parsed> {
        let open = self.expect("{")?;
        let mut fields = Vec::new();
        let mut depth = 0;
        while !self.is_next("}") {
            let is_optional = self.take("?").is_some();
            let token = self.advance();
            if !matches!(token.kind, Kind::Identifier | Kind::Quoted) {
                return Err(syntax(token, format!("mismatched input '{}' expecting IDENTIFIER", token.text)));
            }
            self.expect(":")?;
            let value = self.expression()?;
            depth = depth.max(value.depth);
            let name = token.text.trim_matches('`').into();
            fields.push(StructField { name, value: value.id, is_optional });
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        self.add(Expr::Struct { name: name.into(), fields }, open.offset, depth)
    }

    fn list(&mut self) -> Result<Parsed> {
        let open = self.advance();
        let mut elements = Vec::new();
        let mut optional = Vec::new();
        let mut depth = 0;
        while !self.is_next("]") {
            optional.push(self.take("?").is_some());
            let element = self.expression()?;
            depth = depth.max(element.depth);
            elements.push(element.id);
            if self.take(",").is_none() {
                break;
            }
        }
        self.close("]", ",")?;
        self.add(Expr::List { elements, optional }, open.offset, depth)
    }

    fn map(&mut self) -> Result<Parsed> {
        let open = self.advance();
        let mut entries = Vec::new();
        let mut depth = 0;
        while !self.is_next("}") {
            let is_optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push(MapEntry { key: key.id, value: value.id, is_optional });
            if self.take(",").is_none() {
                break;
            }
        }
        self.close("}", ",")?;
        self.add(Expr::Map(entries), open.offset, depth)
    }

    fn close(&mut self, symbol: &str, separator: &str) -> Result<()> {
        if self.take(symbol).is_some() {
            return Ok(());
        }
        let token = self.peek();
        Err(syntax(
            token,
            format!("mismatched input '{}' expecting {{'{symbol}', '{separator}'}}", token.text),
        ))
    }

    fn literal(&mut self) -> Result<Parsed> {
        let start = self.peek();
        let is_negative = start.kind == Kind::Symbol && start.text == "-" && self.is_number_behind();
        if is_negative {
            self.advance();
        }
        let token = self.peek();
        let value = match (token.kind, token.text) {
            (Kind::Int, text) => {
                literal::int(text, is_negative).map(Literal::Int).ok_or("invalid int literal")
            }
            (Kind::Float, text) => {
                literal::double(text, is_negative).map(Literal::Double).ok_or("invalid double literal")
            }
            (Kind::Uint, text) => literal::uint(text).map(Literal::Uint).ok_or("invalid uint literal"),
            (Kind::String, text) => literal::string(text).map(|text| Literal::String(text.into())),
            (Kind::Bytes, text) => literal::bytes(text).map(|bytes| Literal::Bytes(bytes.into())),
            (Kind::Symbol, "true") => Ok(Literal::Bool(true)),
            (Kind::Symbol, "false") => Ok(Literal::Bool(false)),
            (Kind::Symbol, "null") => Ok(Literal::Null),
            (_, text) => {
                let message = format!("mismatched input '{text}' expecting {{'[', '{{', '(', {OPERAND}}}");
                return Err(syntax(token, message));
            }
        };
        self.advance();
        match value {
            Ok(value) => self.add(Expr::Literal(value), start.offset, 0),
            Err(message) => Ok(self.fault(start.offset, message)),
        }
    }

    /// A call, or the expansion of the macro of this name. `is_deep` tells whether it counts as a level of nesting.
    fn call(
        &mut self,
        offset: usize,
        function: &str,
        target: Option<Parsed>,
        arguments: &[Parsed],
        is_deep: bool,
    ) -> Result<Parsed> {
        let operands = target.iter().chain(arguments);
        let below = operands.map(|operand| operand.depth).max().unwrap_or(0);
        let depth = below + usize::from(is_deep);
        let ids: Vec<ExprId> = arguments.iter().map(|argument| argument.id).collect();
        let target = target.map(|target| target.id);
        match expand(self.tree, self.macros, offset, function, target, &ids) {
            Expansion::None => {
                self.add(Expr::Call { function: function.into(), target, arguments: ids }, offset, depth)
            }
            Expansion::Expanded(id) => {
                if depth > MAX_NESTING {
                    return Err(Failure::Depth);
                }
                Ok(Parsed { id, depth })
            }
            Expansion::Invalid { at, message } => {
                let offset = self.tree.offset(at);
                Ok(self.fault(offset, message))
            }
        }
    }
}

fn syntax(token: Token<'_>, message: String) -> Failure {
    Failure::Syntax { offset: token.offset, message }
}
